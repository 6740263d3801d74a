"""``python -m nearcast``: the command line, where the ``nearcast`` script is not on the path."""

from nearcast.cli import main

if __name__ == "__main__":
    main()
