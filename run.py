"""python run.py scenarios/async_buffer.yaml: the same as `simfl run`."""

import sys

from simfl.cli import main

if __name__ == "__main__":
    main(["run", *sys.argv[1:]])
