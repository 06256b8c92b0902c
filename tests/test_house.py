"""The count of `python -m tests.house`."""

from __future__ import annotations

from pathlib import Path

from tests.house import Size, packages, size

MODULE = '''"""A module
of two lines."""

import os
from sys import (
    argv,
)

# A comment on a separate line.
LIMIT = 3  # and one behind code
"""A field's docstring."""


class Empty:
    """A class."""

    field: str = """two
    lines"""


def call(name: str) -> None:
    """Do it."""
    print(
        name,
        LIMIT,
    )
'''
"""Code: LIMIT, class, the field's two lines, def, and the call's four."""


def test_a_module_counts_code_and_comments_only() -> None:
    assert size(MODULE) == Size(files=1, lines=26, code=9, comments=2)


def test_packages_add_their_modules_up(tmp_path: Path) -> None:
    """Two modules of a package, one of them a folder further down, and a module beside it."""
    (tmp_path / "large" / "below").mkdir(parents=True)
    for path in ("large/one.py", "large/below/two.py"):
        (tmp_path / path).write_text(MODULE)
    (tmp_path / "alone.py").write_text("LIMIT = 3\n")
    assert packages(tmp_path) == {"large": Size(2, 52, 18, 4), "(modules)": Size(1, 1, 1, 0)}
    assert list(packages(tmp_path)) == ["large", "(modules)"]
