"""The output that README.md shows first: the tutorial's scenario, under the modelled clock the same anywhere.

python -m docs.tools.first_run     runs it and writes the block
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from tempfile import TemporaryDirectory

from docs.tools import ROOT

README = ROOT / "README.md"
COMMAND = "simfl run tutorial"
SHOWN = (
    "per aggregate ", "critical: ", "MB up/aggregate ", "aggregates exact ",
    "Fastest ", "Per aggregate ", "Waiting ", "A deadline ", "Written ",
)  # fmt: skip
"""Beginnings of the lines that are shown below the table's heading: what is read in half a minute."""


def excerpt(printed: str) -> str:
    """Return the shown lines of the run's output, with `...` for others."""

    def lines() -> Iterator[str]:
        listed = printed.splitlines()
        heading = next(k for k, line in enumerate(listed) if line.startswith("━"))
        yield from listed[: heading + 1]
        is_shown = was_shown = True
        for line in listed[heading + 1 :]:
            is_shown = line.startswith(SHOWN) or (is_shown and line.startswith("  "))
            if is_shown:
                yield line
            elif was_shown:
                yield "..."
            was_shown = is_shown

    return "\n".join(lines()) + "\n"


def between() -> re.Match[str]:
    """Return the generated part of README.md: marker, block, end."""
    pattern = r"(<!-- python -m docs\.tools\.first_run .*?-->\n```\n)(.*?)(```\n<!-- end -->)"
    match = re.search(pattern, README.read_text(encoding="utf-8"), re.S)
    assert match
    return match


def printed() -> str:
    """Run the command in an empty folder; return what it prints."""
    with TemporaryDirectory() as folder:
        words = [sys.executable, "-m", *COMMAND.split()]
        environment = {**os.environ, "COLUMNS": "80", "PYTHONPATH": str(ROOT)}
        done = subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    return done.stdout


if __name__ == "__main__":
    part, text = between(), README.read_text(encoding="utf-8")
    README.write_text(text[: part.start(2)] + excerpt(printed()) + text[part.end(2) :], encoding="utf-8")
