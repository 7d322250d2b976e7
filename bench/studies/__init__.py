"""Our own studies: ``python -m bench.studies.NAME`` measures and writes bench/results/NAME.md and .json."""
