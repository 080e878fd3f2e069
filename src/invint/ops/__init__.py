"""Pure functions on tensors: no parameters, no state, no modules."""
