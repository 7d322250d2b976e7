"""The version of the package; every room may import it."""

__version__ = "0.1.0"
