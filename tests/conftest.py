"""What all tests share: measurements of this machine go to a folder of their own, not to the user's."""

import os
import tempfile

os.environ["SIMFL_CACHE"] = tempfile.mkdtemp(prefix="simfl-cache-")
