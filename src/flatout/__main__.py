"""`python -m flatout` is the same as `flatout`."""

from flatout.cli import main

if __name__ == "__main__":
    main()
