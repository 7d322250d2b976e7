"""The problems that are measured: simulated ones with fixed seeds, and real data from ``PROBLM_DATA``."""
