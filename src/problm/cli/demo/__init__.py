"""`problm demo`: a tour on simulated data.

Start with `problm.cli.demo.command`.
"""
