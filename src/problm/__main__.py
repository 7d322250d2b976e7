"""``python -m problm``: the command line, for when its script is not on the path."""

from .cli import main

if __name__ == "__main__":
    main()
