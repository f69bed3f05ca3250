"""`python -m ragen2` is the console script."""

from ragen2.cli import main

main()
