"""`simfl leak`: counts, proofs, scenarios that replay a leak, and its exit codes."""

import re

import pytest

from simfl.cli import main
from tests.engine.harness import ROOT

PADS = ROOT / "examples" / "dealt_pads.py"


@pytest.fixture
def leak(capsys, tmp_path, monkeypatch):
    """Run the command in a folder of its own; (exit code, what it printed, errors)."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        with pytest.raises(SystemExit) as left:
            main(["leak", *map(str, arguments)])
        return (left.value.code or 0, *capsys.readouterr())

    return run


@pytest.mark.ci
def test_nothing_beyond_the_sum_and_what_one_more_would_learn(leak) -> None:
    code, out, _ = leak("lightsecagg", "--set", "U=4")
    assert code == 0
    assert re.match(
        r"lightsecagg, 4 users: 1122 rounds, 17 with a result, 66 pairs of rounds, \d+ s\n"
        r"  the server alone: 1122 views, nothing beyond the sum; 66 views of two rounds,\n"
        r"    nothing beyond the sums\n"
        r"  the server and 1 user: 4488 views, nothing beyond the sum; 264 views of two\n"
        r"    rounds, nothing beyond the sums\n"
        r"With 2 colluding users it would leak:\n"
        r"  nobody lost \(timeout\); users 0, 1 collude:\n"
        r"  x_2\[2\] .* is known, from\n",
        out,
    )


def test_a_leak_is_proved_written_and_replayed(leak, tmp_path) -> None:
    own = tmp_path / "dealt_pads.py"  # a file is named once by a process
    own.write_bytes(PADS.read_bytes())
    code, out, errors = leak(f"{own}:DealtPads", "--users", "3", "--collude", "0", "--out", "pads.yaml")
    assert code == 1
    assert errors.endswith(f"Runs the code of {own}\n")
    assert "\n".join(out.splitlines()[3:]) == (
        "  nobody lost (timeout); nobody colludes:\n"
        "  x_0[0] is known, from\n"
        "    + upload of user 0 [0]\n"
        "    less PRG('pad 0' of the server): drawn by the server\n"
        "Written to pads.yaml; replay it with: simfl leak pads.yaml --collude 0"
    )
    assert (tmp_path / "pads.yaml").read_text().startswith("# nobody lost (timeout); nobody colludes:\n# x_0")
    code, out, _ = leak("pads.yaml", "--collude", "0")
    assert code == 1
    assert "    less PRG('pad 0' of the server): drawn by the server\n" in out


@pytest.mark.ci
def test_all_but_one_user_can_collude(leak) -> None:
    """Of three users, t = 2 shares reconstruct: two colluders learn the update of a user taken for lost."""
    code, out, _ = leak("secagg", "--users", "3", "--set", "t=2", "--collude", "2", "--random", "40")
    assert code == 1
    assert re.search(r"the server and 2 users: \d+ views, \d+ with more than the sum\n", out)


@pytest.mark.ci
def test_an_estimate_counts_coalitions(leak, monkeypatch) -> None:
    """A view takes about a millisecond: 8,178 coalitions of 13 users, under 10,000 patterns."""
    code, _, errors = leak("secagg", "--users", "13", "--random", "10000", "--collude", "11")
    assert code == 2
    assert re.search(
        r"secagg, 13 users: 10000 random loss patterns would take about .* (hours|days) here", errors
    )


@pytest.mark.ci
def test_a_scenario_is_looked_at_as_a_whole(leak) -> None:
    code, out, _ = leak(ROOT / "scenarios" / "tutorial.yaml", "--set", "rounds=2")
    assert code == 1  # of fedavg's uploads
    for protocol in ("secagg", "lightsecagg"):
        assert re.search(
            rf"{protocol}, 12 users, the whole run: \d+ s\n"
            r"  the server alone: 1 view, nothing beyond the sum\n"
            r"  the server and 1 user: 12 views, nothing beyond the sum\n",
            out,
        )


def test_a_kernel_without_a_twin_ends_with_2(leak, tmp_path) -> None:
    text = PADS.read_text().replace(
        "ops.total(ops.join([message.padded for message in got.values()]))",
        "ops._op(_sum, (1, self.params.d + 1, U32), {}, [message.padded for message in got.values()])",
    )
    (tmp_path / "pads.py").write_text(f"{text}\n\ndef _sum(rows):\n    return sum(rows)\n")
    code, out, errors = leak("pads.py:DealtPads", "--users", "3")
    assert (code, out) == (2, "")
    assert "_sum has no twin on terms: add one to simfl.dataplane.symbolic.TWINS" in errors


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["secag"], "unknown protocol 'secag'"),
        (["secagg", "--users", "2"], "Invalid value for '--users': "),
        (["lightsecagg", "--set", "U=9"], "privacy.U: U=9 must not be above N - D = 4"),
        (["no_such.yaml"], "no_such.yaml: cannot be read"),
        (
            ["secagg", "--users", "3", "--collude", "3"],
            "collude=3 must be at least 0 and at most 2 of 3 users",
        ),
        (
            ["secagg", "--users", "3", "--lie", "shared", "--collude", "3"],
            "at most 2 of 3 users: one of them",
        ),
        (["secagg", "--users", "40", "--random", "1", "--collude", "39"], "1,099,511,627,775 coalitions"),
        (["secagg", "--out", "nodir/leak.yaml"], "nodir/leak.yaml: there is no folder nodir"),
        (["tutorial", "--users", "3"], "--users: goes with a protocol"),
        (["tutorial", "--random", "3"], "--random: goes with a protocol"),
        (["tutorial", "--collude", "12"], "collude=12 must be at least 0 and at most 11 of 12 users"),
        (["secagg", "--figure", "f.pdf"], "must end in .svg or .png"),
        (["a.yaml", "--figure", "f.svg"], "goes with a protocol"),
    ],
)
def test_bad_usage_is_one_message(leak, arguments, says) -> None:
    code, out, errors = leak(*arguments)
    assert (code, out) == (2, "")
    assert says in " ".join(errors.split())
