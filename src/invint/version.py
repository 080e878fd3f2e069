"""The version of the code, which runs and files name."""

__version__ = "0.1.0"
