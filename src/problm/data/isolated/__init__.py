"""Readers of formats whose libraries are large or written in C, each run in a process of its own that can do no harm.

Calls `problm.data` and `problm.support`. Start with `problm.data.isolated.process`.
"""
