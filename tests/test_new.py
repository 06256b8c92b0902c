"""`simfl new protocol NAME` writes a module, a scenario and a test that pass; it overwrites nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from simfl.cli import main
from simfl.protocols.registry import PROTOCOLS
from simfl.scenario.load import load
from simfl.studies.verify import CHECKS, Subject, answers


def code_of(*arguments: str) -> int:
    with pytest.raises(SystemExit) as left:
        main(["new", "protocol", *arguments])
    return int(left.value.code or 0)


@pytest.mark.ci
def test_what_it_writes_passes(tmp_path: Path) -> None:
    assert code_of("masked_mean", "--out", str(tmp_path)) == 0
    assert {path.name for path in tmp_path.iterdir()} == {
        "masked_mean.py", "masked_mean.yaml", "test_masked_mean.py"
    }  # fmt: skip
    names: dict[str, object] = {"__file__": str(tmp_path / "test_masked_mean.py")}
    source = (tmp_path / "test_masked_mean.py").read_text(encoding="utf-8")
    exec(compile(source, "test_masked_mean.py", "exec"), names)
    tests = [value for name, value in names.items() if name.startswith("test_")]
    assert len(tests) == 3
    for test in tests:
        test()  # type: ignore[operator]
    # It uploads plain updates, and promises nothing.
    private = ("fresh_masks", "secrets", "sessions", "statements")
    subject = Subject(f"{tmp_path / 'masked_mean.py'}:MaskedMean", {})
    rows = {row.name: row for row in answers(subject, {name: CHECKS[name] for name in private})}
    for name in private:
        assert rows[name].not_tried == "the protocol promises nothing (`max_colluders`)"
    assert load(tmp_path / "masked_mean.yaml").protocols["masked_mean"].protocol == "module"
    assert "masked_mean" not in list(PROTOCOLS)


def test_nothing_is_overwritten_and_names_are_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").write_text("kept")
    assert code_of("mine", "--out", str(tmp_path)) == 2
    assert "mine.yaml exists already" in capsys.readouterr().err
    assert (tmp_path / "mine.yaml").read_text() == "kept"
    assert code_of("My-Protocol", "--out", str(tmp_path)) == 2
    assert "small letters" in capsys.readouterr().err
