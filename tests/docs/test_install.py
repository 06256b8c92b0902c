"""docs/install.md names each extra, and the version of torch that is pinned."""

from __future__ import annotations

import re
import tomllib

from tests.docs.pages import ROOT

TEXT = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")


def test_it_has_every_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = set(re.findall(r"`simfl\[(\w+)\]`", TEXT))
    assert extras == set(project["optional-dependencies"]) - {"dev"}


def test_its_torch_is_the_pinned_one() -> None:
    (pinned,) = re.findall(r"^torch==(\S+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.M)
    assert set(re.findall(r"torch==([\d.]+\d)", TEXT)) == {pinned}
