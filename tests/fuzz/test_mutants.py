"""Mutants follow from seed and number alone, and are of all kinds; what is written of them is read back."""

from __future__ import annotations

import subprocess
import sys
from hashlib import sha256
from pathlib import Path
from random import Random

import pytest

from simfl.config.yaml_tree import parse, plain
from simfl.scenario.load import load
from tests.fuzz import findings, lines
from tests.fuzz.mutants import ROOT, SEEDS, Mutant, mutant, trees
from tests.fuzz.text import Raw, dump

DIGEST = (
    "from tests.fuzz.mutants import mutant; from hashlib import sha256; "
    "print(sha256(repr([mutant(1, n) for n in range(200)]).encode()).hexdigest())"
)


@pytest.mark.ci
def test_a_number_makes_the_same_mutant_in_any_process() -> None:
    here = sha256(repr([mutant(1, n) for n in range(200)]).encode()).hexdigest()
    there = subprocess.run(
        [sys.executable, "-c", DIGEST], capture_output=True, text=True, check=True, cwd=ROOT,
        env={"PYTHONHASHSEED": "7", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert there.stdout.strip() == here


@pytest.mark.ci
def test_mutants_differ_and_are_of_all_kinds() -> None:
    made = [mutant(1, n) for n in range(1000)]
    assert len({(m.data, m.sets) for m in made}) > 980
    assert mutant(2, 0) != made[0]
    assert any(m.sets for m in made)
    assert any(m.what == "plausible" for m in made)
    assert any(" = " in m.what for m in made)
    assert any("truncate" in m.what for m in made)


def test_trees_that_are_mutated_are_scenarios(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(SEEDS)
    for tree in trees().values():
        assert load(tree)


def test_any_value_is_written_as_yaml_reads_it() -> None:
    tree = {
        "a": {"b": [1, 2.5, None, True], "c": {}},
        "d": "null", "é": "\u2028 \\ \" \x1b\0", "f": [{"g": -1e300}], "h": float("inf"), "i": 10**200,
    }  # fmt: skip
    assert plain(parse(dump(tree), "")) == tree
    assert dump({"a": Raw("!!x")}) == "a: !!x\n"
    assert dump({"a": "\ud800"}) == 'a: "\\ud800"\n'


def test_a_block_is_a_key_with_what_hangs_on_it() -> None:
    text = b"a:\n  b: 1\n\n  c:\n    d: 2\ne: 3\n".splitlines(keepends=True)
    assert [lines.block(text, i) for i in range(len(text))] == [5, 3, 5, 5, 5, 6]


def test_text_is_mutated_in_any_state() -> None:
    rng = Random(1)
    for data in (b"", b"\n", b"x", b"\xff\n\n"):
        for _ in range(200):
            lines.mutate(data, rng)


def test_shrinking_keeps_what_is_needed() -> None:
    whole = Mutant(b"a:\n  b: 1\n  c: 2\nd: 3\ne:\n  f: 4\n", ("x=1",), "")
    least = findings.shrink(whole, lambda m: b"c: 2" in m.data and b"a:" in m.data, limit_s=10)
    assert least == Mutant(b"a:\n  c: 2\n", ("x=1",), "")


def test_findings_are_read_back(tmp_path: Path) -> None:
    path = tmp_path / "new" / "finding.yaml"
    findings.write(
        path, Mutant(b"seed: \xff\nfile: online.csv\n", ("a.b=c d", "name=\ud800"), ""), "why\nand where"
    )
    back = findings.read(path)
    assert back.sets == ("a.b=c d", "name=\ud800")
    assert back.data.endswith(b"\nseed: \xff\nfile: online.csv\n")
    assert back.data.startswith(b"# why\n# and where\n")
    assert (path.parent / "online.csv").exists()
