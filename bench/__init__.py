"""The paper, reproduced: every figure, with peers, by one harness. Outside the package; uses its public names.

``python -m bench all`` runs everything on data that it makes itself; see `bench.harness.run` for how it measures.
"""
