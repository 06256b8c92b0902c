"""YAML text as a tree: files that are none, YAML 1.2's scalars, aliases, places."""

from __future__ import annotations

from pathlib import Path

import pytest

from simfl.errors import ScenarioError
from simfl.scenario.load import load
from tests.scenario.worlds import SYNC, problems, read, swap


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "w.yaml: the file is empty; a scenario is a mapping of keys to values"),
        (b"# nothing\n", "w.yaml: the file is empty; a scenario is a mapping of keys to values"),
        (b"\n- 1\n- 2\n", "w.yaml:2: a scenario is a mapping of keys to values, not a list"),
        (b"text", "w.yaml:1: a scenario is a mapping of keys to values, not 'text'"),
        (b"a: 1\nb: \xff\n", "w.yaml:2: not UTF-8 text"),
        (b"a: 1\nb: \x07\n", "w.yaml:2: not YAML: the character '\\x07' is not allowed"),
        (b"a: 1\n---\nb: 2\n", "w.yaml:2: not YAML: expected a single document"),
        (b"a: 1\nb: [1, 2\n", "w.yaml:3: not YAML: while parsing a flow sequence"),
        (b"a: 1\nb: *x\n", "w.yaml:2: not YAML: found undefined alias 'x'"),
        (b"a: &x\n  b: *x\n", "w.yaml:2: a.b: an alias that contains itself"),
        (b"a: 1\nb:\n  c: 1\n  c: 2\n", "w.yaml:4: b.c: the key 'c' is doubled (first on line 3)"),
        (b"a: 1\n7: 2\n", "w.yaml:2: a key must be text, not '7': put it in quotes"),
        (b"a: 1\n[b]: 2\n", "w.yaml:2: a key must be text, not a list or mapping: put it in quotes"),
        (
            b"a: 017\n",
            "w.yaml:1: a: 017 has a leading zero: leave it out, write 0o.. for octal, or put it in quotes",
        ),
        (b"a: !!int x\n", "w.yaml:1: a: 'x' is not a whole number that can be read"),
        (b"a: !!bool x\n", "w.yaml:1: a: must be true or false, not 'x'"),
        (b"<<: 3\n", "w.yaml:1: <<: only mappings can be merged"),
        (b"a: " + b"[" * 600, "w.yaml: nested too deeply"),
    ],
)
def test_a_file_that_is_no_scenario_is_refused_in_one_line(
    tmp_path: Path, content: bytes, expected: str
) -> None:
    path = tmp_path / "w.yaml"
    path.write_bytes(content)
    with pytest.raises(ScenarioError) as caught:
        load(path)
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{tmp_path}/{expected}")


def test_python_tags_are_refused_and_not_run(tmp_path: Path) -> None:
    witness = tmp_path / "ran"
    text = f"seed: 1\nrounds: !!python/object/apply:os.mkdir ['{witness}']\n"
    assert problems(tmp_path, text) == [
        "world.yaml:2: rounds: the tag !!python/object/apply:os.mkdir is refused: a scenario holds plain "
        "values only"
    ]
    assert not witness.exists()


@pytest.mark.ci
def test_aliases_that_multiply_are_refused(tmp_path: Path) -> None:
    rows = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    rows += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 10)]
    assert problems(tmp_path, "\n".join(rows)) == [
        "world.yaml: more than 200000 values: its aliases may multiply"
    ]


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "no.yaml", "No such file or directory"), (tmp_path, "Is a directory")):
        with pytest.raises(ScenarioError, match=f"^{path}: cannot be read: {reason}$"):
            load(str(path))


def test_aliases_merges_and_a_byte_order_mark_are_fine(tmp_path: Path) -> None:
    text = "\ufeff" + swap(SYNC, ("secagg: {t: 55}", "secagg: &first {t: 55}"))
    text += "  again: {<<: *first, protocol: secagg}\n"
    text += "  other: {protocol: secagg, <<: [*first], t: 60}\n"
    protocols = read(tmp_path, text).protocols
    assert protocols["again"].t == 55
    assert protocols["other"].t == 60
    assert problems(tmp_path, text + "  third: {<<: *first}\n")[0].startswith(
        "world.yaml:22: protocols.third: unknown protocol 'third'"
    )


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1e-3", 1e-3), ("1.5e3", 1500.0), (".5", 0.5), ("2.", 2.0), ("+3", 3.0), ("1E+2", 100.0),
        ("0x10", 16.0), ("0o17", 15.0), ("!!float 2", 2.0),
    ],
)  # fmt: skip
def test_numbers_are_those_of_yaml_1_2(tmp_path: Path, written: str, value: float) -> None:
    text = swap(SYNC, ("overhead_s: 1e-3", f"overhead_s: {written}"))
    assert read(tmp_path, text).network.overhead_s == value


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("12:30", "'12:30': YAML has no numbers to the base of 60"), ("1_000", "'1_000': write 1000"),
        ("on", "'on'"), ("true", "true"), ("'5'", "'5': write 5 without quotes"),
        ("", "empty"), ("2020-01-01", "'2020-01-01'"), ("{a: 1}", "a mapping"), ("[1]", "a list"),
    ],
)  # fmt: skip
def test_nothing_else_is_taken_for_a_number(tmp_path: Path, written: str, shown: str) -> None:
    text = swap(SYNC, ("overhead_s: 1e-3", f"overhead_s: {written}"))
    assert problems(tmp_path, text) == [f"world.yaml:8: network.overhead_s: must be a number, not {shown}"]


@pytest.mark.parametrize("written", [".inf", "-.inf", ".nan", "1e999"])
def test_numbers_that_are_not_finite_are_refused(tmp_path: Path, written: str) -> None:
    (line,) = problems(tmp_path, swap(SYNC, ("overhead_s: 1e-3", f"overhead_s: {written}")))
    assert line.startswith("world.yaml:8: network.overhead_s: must be a")


@pytest.mark.parametrize(
    ("written", "value"),
    [("on", True), ("off", False), ("yes", True), ("no", False), ("true", True), ("False", False)],
)
def test_switches_come_out_as_meant(tmp_path: Path, written: str, value: bool) -> None:
    assert read(tmp_path, f"overlap: {written}\n{SYNC}").overlap is value
