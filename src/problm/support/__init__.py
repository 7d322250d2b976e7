"""Helpers unrelated to least squares: files, memory, threads, sums, suggestions for misspelt names.

Calls no other room. Start with `problm.support.reduction`, which keeps sums of 10^9 numbers accurate and reproducible.
"""
