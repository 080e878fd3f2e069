"""Recipes: every column of the paper's appendix, and small ones for a CPU."""
