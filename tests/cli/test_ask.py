"""`simfl plan --ask`: seven questions, each until its answer is right, and a file with comments."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from simfl.cli.ask import QUESTIONS, ask
from simfl.scenario.fleet import load_fleet


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of answers that the questions get; an empty one is the usual answer."""
    answers: list[str] = []

    def prompt(text: str, default: str, show_default: bool) -> str:
        assert not show_default
        assert len(text) <= 80
        print(text)
        return answers.pop(0) or default

    monkeypatch.setattr(typer, "prompt", prompt)
    return answers


def test_usual_answers_are_a_fleet(tmp_path: Path, answered: list[str]) -> None:
    """Two million phones on two links: the fleet of the questions' defaults."""
    answered += [""] * len(QUESTIONS)
    ask(file := tmp_path / "mine.yaml")
    fleet = load_fleet(file)
    assert len(QUESTIONS) == 7
    assert (fleet.population.users, fleet.present, fleet.updates) == (2_000_000, 200_000, 1000)
    assert {name: kind.share for name, kind in (fleet.population.classes or {}).items()} == {
        "wifi5_2021": 0.6, "lte_2021": 0.4,
    }  # fmt: skip
    assert (fleet.lost, fleet.collude) == (0.1, 0.05)
    assert fleet.model is not None
    assert (fleet.model.mb, fleet.model.train_s) == (5, 30)


def test_questions_break_between_words(
    tmp_path: Path, answered: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Within 80 columns, with the usual answer last."""
    answered += [""] * len(QUESTIONS)
    ask(tmp_path / "mine.yaml")
    # A path has no place to break, and that of a test may be long.
    lines = [line for line in capsys.readouterr().out.splitlines() if "/" not in line or "lte" in line]
    assert max(map(len, lines)) <= 80
    printed = " ".join(line.strip() for line in lines)
    for question, usual in QUESTIONS.values():
        assert f"{question} [{usual}]" in printed


def test_each_value_has_a_comment(tmp_path: Path, answered: list[str]) -> None:
    answered += [""] * len(QUESTIONS)
    ask(file := tmp_path / "mine.yaml")
    lines = file.read_text(encoding="utf-8").splitlines()
    values = [line for line in lines if line.partition(":")[2].strip() and not line.startswith("#")]
    assert len(values) >= 18
    assert all("  # " in line for line in values)


def test_answers_in_words_are_read(tmp_path: Path, answered: list[str]) -> None:
    answered += ["10k", "5g_2021", "800", "lenet5", "2.5 %", "50", "none"]
    ask(file := tmp_path / "mine.yaml")
    fleet = load_fleet(file)
    assert (fleet.population.users, fleet.present, fleet.lost) == (10_000, 800, 0.025)
    assert list(fleet.population.classes or {}) == ["5g_2021"]
    assert fleet.model is not None
    assert fleet.model.name == "lenet5"
    assert fleet.colluders is None


@pytest.mark.parametrize(
    "links", ["60 % Wi-Fi, 40 % LTE", "wifi 60 %; 4g: 40 %", "wifi5_2021: 60%, lte_2021 40 %"]
)
def test_links_are_read_by_common_names(links: str, tmp_path: Path, answered: list[str]) -> None:
    answered += ["", links, *[""] * (len(QUESTIONS) - 2)]
    ask(file := tmp_path / "mine.yaml")
    assert not answered
    classes = load_fleet(file).population.classes or {}
    assert {name: kind.share for name, kind in classes.items()} == {"wifi5_2021": 0.6, "lte_2021": 0.4}


def test_an_unknown_link_is_named(
    tmp_path: Path, answered: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """A number of phones where links are asked for: the message lists the links."""
    answered += ["", "2,000,000", *[""] * (len(QUESTIONS) - 1)]
    ask(tmp_path / "mine.yaml")
    message = capsys.readouterr().err.splitlines()[0]
    assert "preset" in message
    assert "lte_2021" in message


def test_a_wrong_answer_is_asked_again(
    tmp_path: Path, answered: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """Shares that add up to 90 %, and losses of 10 of each."""
    answered += ["", "lte_2021 40 %, wifi5_2021 50 %", "lte_2021", "", "", "10", "", "", ""]
    ask(file := tmp_path / "mine.yaml")
    messages = capsys.readouterr().err.splitlines()
    assert not answered
    assert messages[0].endswith("must add up to 1, not 0.9")
    assert messages[1] == "lost: must be a share below 1, not 10: write 10 %, if that is meant"
    assert load_fleet(file).lost == 0.1


def test_a_file_is_not_written_over(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("mine", encoding="utf-8")
    with pytest.raises(typer.BadParameter, match="exists already"):
        ask(file)
    assert file.read_text(encoding="utf-8") == "mine"
