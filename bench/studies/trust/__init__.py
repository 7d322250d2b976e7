"""How far the word of a solver can be trusted: claims of success, errors, and what is lost on the way, by classes.

``python -m bench.studies.trust --help`` lists the parts. Start reading in `bench.studies.trust.__main__`.
"""
