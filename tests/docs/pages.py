"""What a page of the documentation holds: fenced blocks, and in them commands with what they print."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]

_SIZE = re.compile(r"\d+\.\d MB")
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.M | re.S)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text."""

    language: str
    text: str


@dataclass(frozen=True)
class Command:
    """A command line, and the lines that are said to come of it."""

    line: str
    prints: tuple[str, ...] = ()

    @property
    def simfl(self) -> list[str] | None:
        """The arguments of simfl, if that is what is run."""
        words = shlex.split(self.line, comments=True)
        if words[:2] == ["python", "run.py"]:
            return ["run", *words[2:]]
        return words[1:] if words[:1] == ["simfl"] else None


def scenario_pages() -> str:
    """The reference of scenarios: docs/scenario.md and the pages below it."""
    docs = ROOT / "docs"
    paths = [docs / "scenario.md", *sorted((docs / "scenario").glob("*.md"))]
    return "".join(path.read_text(encoding="utf-8") for path in paths)


def blocks(page: Path, language: str | None = None) -> list[Block]:
    """The fenced blocks of a page, all or those of a language (`""`: of none)."""
    found = [Block(*match.groups()) for match in _BLOCK.finditer(page.read_text(encoding="utf-8"))]
    return [block for block in found if language in (None, block.language)]


def session(block: Block) -> Iterator[Command]:
    """The commands of a ```console block, each after a `$`."""
    for part in re.split(r"^\$ ", block.text, flags=re.M)[1:]:
        line, _, rest = part.replace("\\\n", " ").partition("\n")
        yield Command(line.strip(), tuple(rest.splitlines()))


def script(block: Block) -> Iterator[Command]:
    """The commands of simfl in a block without a language: the other lines are not commands."""
    for line in block.text.replace("\\\n", " ").splitlines():
        for part in line.partition(" #")[0].split("&&"):
            if part.strip().startswith(("python run.py ", "simfl ")):
                yield Command(part.strip())


def differs(said: tuple[str, ...], printed: str) -> str:
    """What of the lines that a page shows is not there in this order, or nothing.

    `...` stands for any number of lines, without it they follow each other. Accuracies may differ by 0.03:
    they are sums of floats. Sizes of folders may differ.
    """
    lines, at, anywhere = [line.rstrip() for line in printed.splitlines()], 0, False
    for shown in said:
        if shown.strip() == "...":
            anywhere = True
            continue
        ahead = range(at, len(lines) if anywhere else min(at + 1, len(lines)))
        found = next((i for i in ahead if _same(shown.rstrip(), lines[i])), None)
        if found is None:
            there = lines[at] if at < len(lines) else "nothing more"
            return f"{shown!r} is not printed; there is {there!r}"
        at, anywhere = found + 1, False
    return ""


def _same(shown: str, line: str) -> bool:
    if shown.startswith("Written to "):  # the tests' runs are smaller
        return _SIZE.sub("MB", shown) == _SIZE.sub("MB", line)
    if not shown.startswith("test accuracy"):
        return shown == line
    mine, other = ([float(x) for x in re.findall(r"0\.\d+|1\.0+", text)] for text in (shown, line))
    return len(mine) == len(other) and all(abs(a - b) <= 0.03 for a, b in zip(mine, other, strict=True))
