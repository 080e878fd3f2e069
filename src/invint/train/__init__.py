"""Training: pace, objective, loop, checkpoints. Knows no network and no data set by name."""
