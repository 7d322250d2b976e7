"""The problems that are measured: made ones with fixed seeds, and real data from ``PROBLM_DATA``."""
