"""`problm demo`: a tour on data that it makes itself.

Start with `problm.cli.demo.command`.
"""
