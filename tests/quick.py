"""The check while working: lint, types, the layers, one golden trace, and the tests of what has changed.

python -m tests.quick     for the changes since the last commit; if there are none, since the branch left main

Tests of a changed module are those of its package (simfl/engine -> tests/engine) whose imports lead to it,
through helpers of tests and modules of the same package. `import simfl` leads to all of them.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from tests.test_layers import imports

ROOT = Path(__file__).parents[1]
ALWAYS = ("tests/test_layers.py", "tests/test_house.py", "tests/golden/test_small_round.py")
PAGES = "tests/docs/test_pages.py"
"""Its links and names are checked where a page has changed."""


def git(*arguments: str) -> list[str]:
    """Return the lines that a git command prints."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def changed() -> list[str]:
    """Return the changed files that exist, by their paths in the checkout."""
    files = git("diff", "--name-only", "HEAD") + git("ls-files", "--others", "--exclude-standard")
    if not files:
        (base,) = git("merge-base", "HEAD", "main")
        files = git("diff", "--name-only", base)
    return [file for file in files if (ROOT / file).exists()]


@cache
def modules() -> dict[str, Path]:
    """Return the files of all modules, by dotted name; a package's is that of its `__init__`."""
    paths = [path for part in ("simfl", "papers", "docs", "tests") for path in (ROOT / part).rglob("*.py")]
    named = {path.relative_to(ROOT).with_suffix("").parts: path for path in paths}
    return {".".join(part for part in parts if part != "__init__"): path for parts, path in named.items()}


@cache
def imported(name: str) -> set[str]:
    """Return the modules that a module imports."""
    names = set()
    for target in imports(modules()[name]):
        while target and target not in modules():
            target = target.rpartition(".")[0]
        names.add(target)
    return names - {"", name}


def leads_to(test: str, package: str, targets: set[str]) -> bool:
    """Return True if a test's imports lead to one of the targets, which are modules of this package."""
    seen, ahead = set[str](), [test]
    while ahead:
        name = ahead.pop()
        seen.add(name)
        below = imported(name)
        if below & targets or (name.startswith("tests.") and "simfl" in below):
            return True
        ahead += [each for each in below - seen if f"{each}.".startswith(("tests.", f"{package}."))]
    return False


def folder_of(file: str) -> tuple[str, str]:
    """Return the package of a file, and the folder of its tests."""
    part, *below = file.split("/")
    if part == "simfl":
        return (f"simfl.{below[0]}", f"tests/{below[0]}") if len(below) > 1 else ("simfl", "tests")
    return part, f"tests/{part}"


def choose_tests(files: Iterable[str]) -> list[str]:
    """Return the test files to run for these changed files."""
    chosen, targets = dict.fromkeys(ALWAYS), dict[tuple[str, str], set[str]]()
    names = {path.relative_to(ROOT).as_posix(): name for name, path in modules().items()}
    for file in files:
        if Path(file).name.startswith("test_") and file.endswith(".py"):
            chosen[file] = None
        elif file.endswith(".md"):
            chosen[PAGES] = None
        elif file.startswith("tests/"):
            targets.setdefault(("tests", Path(file).parent.as_posix()), set()).add(names.get(file, ""))
        else:  # what is not Python, such as a template, may matter to all of its package
            package, folder = folder_of(file)
            every = {name for name in modules() if f"{name}.".startswith(f"{package}.")}
            targets.setdefault((package, folder), set()).update({names[file]} if file in names else every)
    for (package, folder), wanted in targets.items():
        deep = folder != "tests"
        for path in sorted((ROOT / folder).glob("**/test_*.py" if deep else "test_*.py")):
            test = path.relative_to(ROOT).as_posix()
            if leads_to(names[test], package, wanted):
                chosen[test] = None
    return list(chosen)


def main() -> int:
    files = changed()
    python = [file for file in files if file.endswith(".py")]
    commands = [
        *([["ruff", "check", *python], ["ruff", "format", "--check", *python]] if python else []),
        ["mypy"],
        ["pytest", "-n", "auto", "--dist", "loadfile", *choose_tests(files)],
    ]
    failed = 0
    for command in commands:
        print("$", " ".join(command), flush=True)
        failed |= subprocess.run([sys.executable, "-m", *command], cwd=ROOT).returncode
    return failed


if __name__ == "__main__":
    sys.exit(main())
