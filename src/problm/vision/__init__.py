"""Computer vision on top of the solver: these rooms make problems and interpret results, but have no solver loop."""
