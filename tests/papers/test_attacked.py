"""The entries of attacks: what counts as learnt, revealed or hidden, on findings made by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from papers import attacked, ccesa_fig2, ccesa_table3, multi_round_fig8, multi_round_fig9
from papers.attacked import Attack
from papers.entry import Place
from simfl.privacy.attacks.attack import Finding
from simfl.scenario.schema import Scenario
from tests.engine.harness import ROOT

HERE = Place(ROOT)


def given(monkeypatch: pytest.MonkeyPatch, found: Mapping[tuple[str, str], Mapping[str, float]]) -> None:
    """Let attacks find this."""
    outcome = tuple(Finding(*name, numbers) for name, numbers in found.items())
    monkeypatch.setattr(Attack, "findings", lambda self, place, seed: outcome)
    monkeypatch.delenv("SIMFL_DATA", raising=False)


ATTACKS = {
    module.__name__: module.ATTACK
    for module in (ccesa_fig2, ccesa_table3, multi_round_fig8, multi_round_fig9)
}


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_takes_the_papers_data(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    taken = []

    def perform(made: Any, folder: Path, s: Scenario, *more: Any) -> SimpleNamespace:
        taken.append(s.learning)
        assert s.record_updates
        return SimpleNamespace(findings=())

    monkeypatch.setattr(attacked.recorded, "perform", perform)
    monkeypatch.setenv("SIMFL_DATA", str(tmp_path))
    attack = ATTACKS[name]
    attack.findings(HERE, 1)
    assert attack.told == ""
    (tmp_path / attack.dataset).mkdir()
    attack.findings(HERE, 1, {"learning.lr": 0.25})
    digits, theirs = taken
    assert (digits.dataset.kind, theirs.dataset.kind) == ("digits", attack.dataset)
    assert theirs.model.kind == attack.settings["learning.model"]
    assert theirs.lr == 0.25
    assert attack.told.startswith(f"{attack.dataset} from a local folder, with learning.model ")


def run_of(accuracy: float) -> dict[str, float]:
    return {"accuracy": accuracy, "precision": float("nan"), "recall": 0.0, "auc": accuracy}


@pytest.mark.parametrize(
    ("plain", "accuracy", "agrees"),
    [(True, 0.6, True), (True, 0.52, False), (False, 0.52, True), (False, 0.6, False), (False, 0.46, False)],
)
def test_membership_is_learnt_or_a_coins(plain: bool, accuracy: float, agrees: bool) -> None:
    first, number = ccesa_table3.judged("it", plain, [run_of(accuracy)] * 2, None)
    assert first.agrees is agrees
    assert number.paper is None
    assert number.remark.startswith("nobody taken for a member")


def test_an_image_is_revealed_or_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = {"corr": 0.05, "ssim": 0.0, "psnr": 5.0}
    found = {(name, "masked uploads"): numbers for name in ("secagg", "ccesa")}
    found |= {(name, "global model"): numbers for name in ("fedavg", "secagg", "ccesa")}
    for seen, agrees in ((0.7, True), (0.3, False)):
        given(monkeypatch, {**found, ("fedavg", "uploads"): {**numbers, "corr": seen}})
        cells = ccesa_fig2.run(HERE).cells
        assert [cell.agrees for cell in cells] == [agrees, True, True, None, None, None]


def test_images_must_fall_with_t(monkeypatch: pytest.MonkeyPatch) -> None:
    for psnr, agrees in (((30, 17, 12), True), ((30, 12, 17), False), ((19, 17, 12), False)):
        found = {
            (f"T_{t}", "sums"): {"psnr": float(p), "mse": 1.0 / p, "blind": 13.0}
            for t, p in zip((1, 2, 4), psnr, strict=True)
        }
        given(monkeypatch, found)
        assert multi_round_fig9.run(HERE).cells[0].agrees is agrees


def test_a_batch_singled_out_disagrees(monkeypatch: pytest.MonkeyPatch) -> None:
    at_random = {"users": 40.0, "rank": 40.0, "alone": 40.0, "mean": 0.007}
    for alone, agrees in ((0.0, True), (2.0, False)):
        batches = {"users": 40.0, "rank": 20.0, "alone": alone, "mean": 0.4}
        given(monkeypatch, {("random", "sums"): at_random, ("batches_2", "sums"): batches})
        cells = multi_round_fig8.run(HERE).cells
        assert [cell.agrees for cell in cells if cell.agrees is not None] == [True, True, agrees]
        assert cells[0].paper is None  # other data: nothing stands beside the paper's number
