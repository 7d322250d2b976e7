"""Hostile input for every parser: ``python -m tests.hardship.fuzz --seconds 600`` tries each for ten minutes."""
