"""Findings as scenario files: shrunk a little, written, and read back as the mutants that they are."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from tests.fuzz.lines import block
from tests.fuzz.mutants import FILES, Mutant

SET = b"# --set "
"""Before what is given by `--set`, on a line of its own."""


def shrink(mutant: Mutant, same: Callable[[Mutant], bool], limit_s: float) -> Mutant:
    """Drop line after line, with what hangs on each, as long as the mutant still does the same."""
    until = time.monotonic() + limit_s
    lines, again = mutant.data.splitlines(keepends=True), True
    while again:
        again, start = False, 0
        while start < len(lines) and time.monotonic() < until:
            fewer = [*lines[:start], *lines[block(lines, start) :]]
            if same(replace(mutant, data=b"".join(fewer))):
                lines, again = fewer, True
            else:
                start += 1
    return replace(mutant, data=b"".join(lines))


def write(path: Path, mutant: Mutant, words: str) -> None:
    """A file that fails by itself, or with the `--set` in its comments."""
    path.parent.mkdir(parents=True, exist_ok=True)
    head = [f"# {line}".encode(errors="backslashreplace") for line in words.splitlines()]
    head += [SET + given.encode("utf-8", "surrogatepass") for given in mutant.sets]
    path.write_bytes(b"\n".join([*head, mutant.data]))
    for named in FILES:
        if named.name.encode() in mutant.data:
            shutil.copy(named, path.parent)


def read(path: Path) -> Mutant:
    """The mutant in a file."""
    data = path.read_bytes()
    sets = re.findall(b"^" + SET + b"(.*)$", data, re.M)
    return Mutant(data, tuple(given.decode("utf-8", "surrogatepass") for given in sets), path.name)


def slug(key: str) -> str:
    """A finding's key as part of a file's name."""
    return re.sub(r"[^A-Za-z0-9]+", "-", key).strip("-").lower()[:60]
