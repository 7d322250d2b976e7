"""Runs, records, checks and draws experiments; independent of problems and peers."""
