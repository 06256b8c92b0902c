"""A published benchmark of SecAgg: what is fitted, what is predicted, and bits by hand."""

from __future__ import annotations

import pytest

from papers import ftsa, store
from papers.entry import Place
from papers.ftsa import ITS_SERVER, USERS, Setting
from simfl import cli
from simfl.errors import BadInput
from tests.engine.harness import ROOT

NAMED = Setting(100, 1_000, 0.1)


def test_the_logs_are_whole() -> None:
    log = ftsa.logged()
    assert len(log) == 51
    assert {len(of) for of in log.values()} == {16}
    assert sum(map(ftsa.inside, log)) == 28
    assert len(ftsa.FITTED) == 8
    assert set(ftsa.FITTED) < set(log)


def test_bits_by_hand() -> None:
    """1,000 elements of 16 + 7 bits; shares of 90 seeds and 10 keys; ten users are gone when 90 survive."""
    bits = ftsa.bits(NAMED)
    assert bits["bits_sent", "round 0"] == 16 + 512 + 512
    assert bits["bits_sent", "round 2"] == 16 + 23 * 1_000
    assert bits["bits_sent", "round 4"] == 16 + 90 * (128 + 32) + 10 * (256 + 32) == 17_296
    assert bits["bits_rcvd", "round 4"] == 90 * 16
    logged = ftsa.logged()[NAMED]
    assert {key: logged[key] for key in bits if key[1] != "round 1" and key[0] == "bits_sent"} == {
        key: bits[key] for key in bits if key[1] != "round 1" and key[0] == "bits_sent"
    }


def test_work_by_hand() -> None:
    """Of 100 users 10 are lost: the server agrees on 10 x 99 pairs, and expands them and 90 own masks."""
    work = ftsa.work(NAMED)
    assert work[USERS, "round 1"]["agree"] == work[USERS, "rounds 2 and 4"]["agree"] == 99
    assert work[ITS_SERVER, "round 4"]["agree"] == 10 * 99
    masks = 10 * 99 + 90
    assert work[ITS_SERVER, "round 4"]["prg_element"] == masks * 1_001
    assert (
        work[ITS_SERVER, "round 4"]["field_add"] == (masks + 90 - 1) * 1_001
    )  # taken off the sum of uploads


@pytest.mark.ci
def test_long_durations_are_predicted_within_the_bound() -> None:
    log = ftsa.logged()
    found = {
        (setting, key): ftsa.predicted(setting)[key] / seconds - 1
        for setting in log
        if setting not in ftsa.FITTED and ftsa.inside(setting)
        for key, seconds in ftsa.times_of(log[setting]).items()
        if seconds > 0.03
    }
    assert len(found) == 60
    assert max(map(abs, found.values())) < ftsa.BOUND


def test_intervals_hold_what_was_logged() -> None:
    """Each interval is as narrow as two digits allow, and holds its 20 or 23 stored settings."""
    stored = store.read(Place(ROOT), "ftsa")
    assert stored is not None
    found: dict[tuple[str, str, bool], list[float]] = {}
    for cell in stored.evidence.cells:
        if cell.basis == "predicted" and cell.bound:
            _, _, words = cell.label.partition(": ")
            who, when = words.split(", ", 1)
            key = USERS if who == "a user" else ITS_SERVER, when, not cell.remark
            found.setdefault(key, []).append(cell.paper / cell.ours)  # type: ignore[operator]
    assert [len(of) for of in found.values()] == [23] * 5 + [20] * 5
    for (who, when, between), ratios in found.items():
        low, high = ftsa.SPREAD[who, when][between]
        assert low <= min(ratios) < low + 0.011
        assert high - 0.011 < max(ratios) <= high


def test_moving_shares_takes_longer_a_pair_among_more_users() -> None:
    """By the loop that was measured: 1.7 times at n = 1,000. Nothing else depends on it."""
    few, many = (ftsa.work(Setting(n, 1_000, 0.0))[ITS_SERVER, "round 1"]["row"] for n in (100, 200))
    assert many / few == pytest.approx(200 * 199 / (100 * 99) * 207 / 195, rel=1e-2)


@pytest.mark.ci
def test_rates_that_made_the_times_come_out(monkeypatch: pytest.MonkeyPatch) -> None:
    true = {kind: (k + 1) * 1e-5 for k, kind in enumerate(ftsa.KINDS)}

    def times(setting: Setting) -> ftsa.Times:
        return {key: sum(true[k] * w[k] for k in true) for key, w in ftsa.work(setting).items()}

    monkeypatch.setattr(ftsa, "logged", lambda: {setting: setting for setting in ftsa.FITTED})
    monkeypatch.setattr(ftsa, "times_of", times)
    assert ftsa.rates.__wrapped__() == pytest.approx(true, rel=1e-3)


@pytest.mark.parametrize(("given", "message"), {
    "missing": ({"n": 600}, "n, d and dropout are needed"),
    "half a user": ({"n": 99.5, "d": 10, "dropout": 0}, "n=99.5 must be a whole number from 3 to 5000"),
    "too many lost": ({"n": 600, "d": 10, "dropout": 0.5}, "dropout=0.5 must be a number from 0 to 0.33"),
}.values())  # fmt: skip
def test_a_setting_that_cannot_be_is_refused(given: dict[str, float], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        ftsa.at(given)


@pytest.mark.ci
def test_a_setting_that_was_not_logged(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["reproduce", "ftsa", "--at", "n=150,d=1000,dropout=0.1"])
    assert not stopped.value.code
    told = capsys.readouterr().out
    assert "t = 100" in told
    assert f"{16 + 24 * 1_000:12.0f} bits" in told


@pytest.mark.ci
def test_the_smallest_update_is_predicted() -> None:
    lines = ftsa.at({"n": 50, "d": 1, "dropout": 0})
    assert "t = 34" in lines[0]
    assert lines[-1] == "extrapolated: the intervals hold all 23 such settings that were logged"
    assert any(line.startswith("bits_sent") and line.endswith(f"{16 + 22} bits") for line in lines)


@pytest.mark.parametrize(
    "at", ["n=50,d=1", "n=x,d=1,dropout=0", "n=50,n=60,d=1,dropout=0", "n=2,d=1,dropout=0"]
)
def test_a_wrong_setting_is_one_message(at: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["reproduce", "ftsa", "--at", at])
    assert stopped.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "--at: " in line


def test_only_predictions_take_a_setting(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["reproduce", "ccesa_table2", "--at", "n=150"])
    assert stopped.value.code == 2
    assert "ftsa" in capsys.readouterr().err
