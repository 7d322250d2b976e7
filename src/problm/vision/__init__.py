"""Computer vision on the solver: these modules make problems and read results, they never loop."""
