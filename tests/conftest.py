"""What all tests share: a folder of their own for measurements of this machine, and Ctrl-C."""

import os
import signal
import tempfile

os.environ["SIMFL_CACHE"] = tempfile.mkdtemp(prefix="simfl-cache-")

# A job in a shell's background ignores Ctrl-C, and so would every command that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
