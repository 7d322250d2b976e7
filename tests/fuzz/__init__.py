"""Hostile input for every parser: ``python -m tests.fuzz --seconds 600`` tries each of them for ten minutes."""
