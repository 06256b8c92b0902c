"""python -m simfl: the command line."""

from simfl.cli import main

main()
