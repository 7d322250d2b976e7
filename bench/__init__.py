"""Reproduction of every figure of the paper, with peers, by one harness. Not part of the package.

``python -m bench all`` runs everything on simulated data; `bench.harness.run` explains how it measures.
"""
