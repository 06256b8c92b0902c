"""Views from recorded runs: the models, uploads and sums that the run's own server had; what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simfl.errors import BadInput
from simfl.privacy import recorded
from simfl.privacy.attacks.attack import Truth, View
from simfl.reports.folder import open_folder
from simfl.reports.page import page
from simfl.runs.build import build
from simfl.runs.watch import run_watched
from simfl.scenario.load import load
from tests.engine.harness import ASYNC, SIX, SYNC, run
from tests.runs.folder.test_latest import told

RECORDED = {**SIX, "rounds": 3, "record_updates": True}
FEW = {**RECORDED, "protocols": ["fedavg"], "learning.partition": {"few": 2}, "rounds": 8}


def seen(folder: Path) -> dict[str, tuple[View, Truth]]:
    study = build(recorded.scenario_of(folder))
    return {view.entry: (view, truth) for view, truth in recorded.views(folder, study)}


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rounds")
    run(RECORDED, out=folder)
    return folder


@pytest.mark.ci
def test_models_are_those_of_the_run(rounds: Path) -> None:
    lines = [json.loads(line) for line in (rounds / "metrics.jsonl").read_text().splitlines()]
    study = build(recorded.scenario_of(rounds))
    for view, _ in recorded.views(rounds, study):
        losses = [line["loss"] for line in lines if line["protocol"] == view.entry]
        found = [study.trainers[view.entry].evaluate(model[None])[0, 1] for model in view.models[1:]]
        np.testing.assert_allclose(found, losses, rtol=1e-6)


@pytest.mark.ci
def test_masked_uploads_are_the_runs_to_the_bit(rounds: Path) -> None:
    for name in ("secagg", "lightsecagg"):
        view, _ = seen(rounds)[name]
        played = run_watched(build(load(SYNC, RECORDED)), name)
        sent = [(who, m.masked.content[0]) for who, _, m in played.sent if m.kind == "upload"]
        d, q, levels = view.models.shape[1], 2**32 - 5, 65536
        for place in range(3):
            for user, (upload, made_on) in view.uploads(place).items():
                _, vector = [item for item in sent if item[0] == user][place]
                whole = vector[:d].astype(np.int64)
                whole -= (whole >= (q - 1) // 2) * q
                samples = len(seen(rounds)[name][1].parts[user])
                np.testing.assert_array_equal(upload, (whole / (levels * samples)).astype(np.float32))
                assert made_on == place


def test_plain_uploads_and_sums_are_the_updates(rounds: Path) -> None:
    view, truth = seen(rounds)["fedavg"]
    assert view.plain
    first = truth.first(2)
    for user, (delta, _) in view.uploads(2).items():
        np.testing.assert_allclose(first[user], delta * len(truth.parts[user]), rtol=1e-6)
    np.testing.assert_allclose((view.weights[2] > 0) @ np.nan_to_num(first), view.totals[2], atol=1e-3)


@pytest.mark.ci
def test_buffered_uploads_know_their_models(tmp_path: Path) -> None:
    run({"rounds": 4, "record_updates": True}, base=ASYNC, out=tmp_path)
    views = seen(tmp_path)
    plain, truth = views["fedbuff"]
    study = build(recorded.scenario_of(tmp_path))
    ages = set()
    for place in range(4):
        for user, (delta, made_on) in plain.uploads(place).items():
            ages.add(place - made_on)
            # A user's update points from its own model towards less loss on its samples.
            assert _loss(study, truth, user, plain.models[made_on] - delta) < _loss(
                study, truth, user, plain.models[made_on]
            )
    assert max(ages) > 0
    masked = views["lightsecagg_async"][0].uploads(1)
    values = np.concatenate([upload for upload, _ in masked.values()])
    assert np.std(values) == pytest.approx((2**32 - 5) / 65536 / np.sqrt(12), rel=0.1)


NOISY = {
    **FEW,
    "protocols": ["fedavg", "secagg"],
    "rounds": 2,
    "quantization": None,
    "dp": {"mechanism": "skellam", "clip": 0.5, "epsilon": 20, "delta": 1e-3, "bits": 16},
}


@pytest.mark.ci(but=["fedavg"])
@pytest.mark.parametrize("name", ["fedavg", "secagg"])
def test_noisy_views_have_the_noise_of_the_run(name: str, tmp_path: Path) -> None:
    """FedAvg's uploads have their users' noise, and their mean is the noisy one; masks hide both."""
    run(NOISY | {"protocols": [name]}, out=tmp_path)
    view, truth = seen(tmp_path)[name]
    summary = json.loads((tmp_path / "summary.json").read_text())
    assert view.epsilon == summary["protocols"][name]["rounds"][-1]["epsilon"]
    for index in range(2):
        uploads = np.stack([upload for upload, _ in view.uploads(index).values()])
        close = np.allclose(uploads.mean(axis=0), view.totals[index] / len(uploads), atol=1e-4)
        assert close is (name == "fedavg")
        true = np.stack([truth.first(index)[user] for user in view.uploads(index)])
        # Each of six users adds a sixth of the variance; a mask is uniform over the field.
        own = summary["protocols"][name]["promise"]["noise_multiplier"] * 0.5 / 6**0.5
        is_part = bool(abs(np.std(uploads - true) / own - 1) < 0.2)
        assert is_part is (name == "fedavg")


@pytest.mark.ci
def test_attacks_with_and_without_noise_are_on_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(NOISY, out=tmp_path)
    out, _ = attack(capsys, 0, "membership", str(tmp_path), "--with", "shadows=2", "--json")
    rows = {(row["entry"], row["attacked"]): row for row in json.loads(out)["findings"]}
    promised = rows["secagg", "all global models"]
    assert promised["epsilon"] == pytest.approx(20, rel=1e-4)
    assert promised["advantage"] <= promised["bound"] <= 1
    # In the clear an upload has a part of the noise alone, of which nothing is promised.
    assert rows["fedavg", "uploads"]["epsilon"] is None
    assert rows["secagg, no noise", "all global models"]["epsilon"] is None
    drawn = page(open_folder(tmp_path))
    assert "Attacks on this run" in drawn
    assert "<td>secagg, no noise</td>" in drawn


def _loss(study: Any, truth: Truth, user: int, model: Any) -> float:
    from simfl.privacy.attacks.attack import pixels

    trainer = study.trainers["fedbuff"]
    z = trainer._learner.logits(model, pixels(truth.split.x_train[truth.parts[user]])).astype(float)
    y = truth.split.y_train[truth.parts[user]]
    return float((np.log(np.exp(z).sum(axis=1)) - z[np.arange(len(y)), y]).mean())


# --- the command ----------------------------------------------------------------------------------
def attack(capsys: pytest.CaptureFixture[str], code: int, *arguments: str) -> tuple[str, str]:
    return told(capsys, code, "privacy", "attack", *arguments)


@pytest.mark.ci
def test_a_table_a_figure_and_the_same_bytes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(FEW, out=tmp_path)
    out, _ = attack(capsys, 0, "inversion", str(tmp_path), "--with", "steps=30", "--with", "users=2")
    assert "fedavg" in out
    assert "psnr" in out
    files = [tmp_path / "attack-inversion.json", tmp_path / "attack-inversion.svg"]
    before = [file.read_bytes() for file in files]
    again, _ = attack(
        capsys, 0, "inversion", str(tmp_path), "--with", "steps=30", "--with", "users=2", "--json"
    )
    assert again.encode() == before[0]
    assert [file.read_bytes() for file in files] == before
    content = json.loads(again)
    assert content["attack"]["steps"] == 30
    assert content["findings"][0]["attacked"] == "uploads"


def test_a_scenario_is_run_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from simfl.config.yaml_tree import dump

    scenario = tmp_path / "few.yaml"
    scenario.write_text(dump(load(SYNC, {**FEW, "record_updates": False}).model_dump(mode="json")))
    out = tmp_path / "run"
    attack(capsys, 0, "least_squares", str(scenario), "--out", str(out), "--set", "rounds=2")
    assert {"updates-fedavg.npz", "attack-least_squares.json", "summary.json"} <= {
        f.name for f in out.iterdir()
    }


def test_a_missing_file_of_a_folder_is_named(
    rounds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, nothing = attack(capsys, 2, "inversion", str(tmp_path))
    assert nothing.startswith(f"{tmp_path} is no run's folder; ")
    run({}, out=tmp_path)
    _, unrecorded = attack(capsys, 2, "inversion", str(tmp_path))
    assert "no updates-*.npz: run its scenario with record_updates: true" in unrecorded
    _, many = attack(capsys, 2, "inversion", str(rounds))
    assert "inversion needs users of at most 8 samples, and one has 240" in many
    _, wrong = attack(capsys, 2, "inversion", str(rounds), "--with", "steps=0")
    assert wrong == "inversion: steps is 0, expected greater than or equal to 1\n"
    _, unknown = attack(capsys, 2, "inversions", str(rounds))
    assert "unknown attack 'inversions'" in unknown
    _, other = attack(capsys, 2, "least_squares", str(rounds), "--set", "rounds=1")
    assert "must go with a scenario" in other


def test_a_refused_scenario_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from simfl.config.yaml_tree import dump

    scenario, out = tmp_path / "many.yaml", tmp_path / "run"
    scenario.write_text(dump(load(SYNC, SIX).model_dump(mode="json")))
    _, error = attack(capsys, 2, "inversion", str(scenario), "--out", str(out))
    assert "inversion needs users of at most 8 samples" in error
    assert not out.exists()


THEIRS = """
import numpy as np
from simfl.privacy.attacks.attack import Attack, Finding, Knowledge, Outcome

class Loudest(Attack):
    '''The largest sum.'''
    knowledge = Knowledge("nothing", "norm: of the largest sum")
    times: float = 1.0

    def __call__(self, view, truth, rng):
        norm = self.times * float(np.linalg.norm(view.totals, axis=1).max())
        return Outcome((Finding(view.entry, "sums", {"norm": norm}),))
"""


def test_a_strangers_attack(rounds: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "loud.py").write_text(THEIRS)
    module = f"{tmp_path / 'loud.py'}:Loudest"
    out, errors = attack(capsys, 0, module, str(rounds), "--with", "times=2.0", "--json")
    assert errors.startswith(f"Runs the code of {tmp_path / 'loud.py'}")
    norms = {f["entry"]: f["norm"] for f in json.loads(out)["findings"]}
    expected = 2 * np.linalg.norm(seen(rounds)["fedavg"][0].totals, axis=1).max()
    assert norms["fedavg"] == pytest.approx(expected)
    assert (rounds / "attack-Loudest.svg").is_file()


def test_updates_of_another_scenario_are_refused(rounds: Path) -> None:
    study = build(load(SYNC, {**RECORDED, "learning.model": "cnn"}))
    with pytest.raises(
        BadInput, match=r"must have 6 users and 6090 parameters, as resolved.yaml, not 6 and 650"
    ):
        list(recorded.views(rounds, study))
