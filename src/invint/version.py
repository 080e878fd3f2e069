"""The version of the code, which runs and files name."""

__version__ = "0.2.0"

# Versions that train the same recipe to the same bits (tests/test_golden.py): their runs may stand
# in one table.
COMPARABLE = ("0.1.0", "0.2.0")
