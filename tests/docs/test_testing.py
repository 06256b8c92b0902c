"""docs/testing.md: its files are a team's folder of tests, and they pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from simfl.scenario.load import resolved_yaml
from simfl.studies.explore.pinned import described
from tests.docs.pages import ROOT, blocks
from tests.test_pytest_plugin import pytest_in

PAGE = ROOT / "docs" / "testing.md"


@pytest.mark.ci
def test_the_pages_tests_pass(tmp_path: Path) -> None:
    files = {b.text.splitlines()[0].removeprefix("# "): b.text for b in blocks(PAGE) if b.language != "text"}
    assert sorted(files) == ["lost_at_upload.yaml", "test_explored.py", "test_rounds.py"]
    pattern = described("user 0 lost before upload (told)", "secagg")
    for name, text in {**files, "explored.yaml": resolved_yaml(pattern.scenario)}.items():
        (tmp_path / name).write_text(text)
    printed = pytest_in(tmp_path)
    assert "= 4 passed in" in printed, printed
