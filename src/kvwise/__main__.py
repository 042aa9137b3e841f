"""`python -m kvwise`."""

from kvwise.cli import main

if __name__ == "__main__":
    main()
