"""Computer vision on top of the solver: these rooms make problems and interpret results; none has a loop of its own."""
