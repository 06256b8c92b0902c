"""A published benchmark of SecAgg: what is fitted, what is predicted, and bits by hand."""

from __future__ import annotations

import pytest

from papers import ftsa
from papers.ftsa import ITS_SERVER, USERS, Setting
from simfl import cli
from simfl.errors import BadInput

NAMED = Setting(100, 1_000, 0.1)


def test_the_logs_are_whole() -> None:
    log = ftsa.logged()
    assert len(log) == 28
    assert {len(of) for of in log.values()} == {15}
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
        if setting not in ftsa.FITTED
        for key, seconds in ftsa.times_of(log[setting]).items()
        if seconds > 0.03
    }
    assert len(found) == 60
    assert max(map(abs, found.values())) < ftsa.BOUND


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
