"""Small helpers that know nothing of least squares: files, memory, threads, sums, and words for what is misspelt.

Calls nothing of ours. Start with `problm.support.reduction`, which keeps sums of 10^9 numbers exact and reproducible.
"""
