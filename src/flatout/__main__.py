"""`python -m flatout` is the same as `flatout`."""

import sys

if __name__ == "__main__":
    # -m puts the working directory first; a random.py of the user's there must not become ours.
    del sys.path[0]

    from flatout.cli import main

    main()
