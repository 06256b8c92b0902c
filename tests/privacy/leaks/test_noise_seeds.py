"""Seeds of noise in proofs: those of the noise that a sum counts on stay unknown, whoever is lost."""

from __future__ import annotations

from typing import Any

import pytest

from simfl.privacy.leaks.invariants import open_noise, privacy_findings
from simfl.privacy.leaks.views import Transcript
from simfl.protocols.machine import Params
from simfl.protocols.masked_round import MaskedClient
from simfl.studies.proof.patterns import make_small

DP = {"mechanism": "skellam", "clip": 0.5, "noise_multiplier": 1.0, "bits": 16, "dropout": {"repair": 0.3}}


def rounds(protocol: str) -> list[Transcript]:
    """The rounds of four users, one of whom may be lost, without losses and with one."""
    small = make_small(protocol, 4, changes={"dp": DP})
    return [seen for _, seen in small.rounds("timeout", 1) if seen.noise]  # type: ignore[union-attr]


def findings(protocol: str, colluders: int = 1) -> list[str]:
    return [text for seen in rounds(protocol) for text in privacy_findings(seen, colluders)]


@pytest.mark.ci(but=["secagg"])
@pytest.mark.parametrize("protocol", ["secagg", "secagg_plus", "ccesa", "lightsecagg"])
def test_seeds_that_a_sum_counts_on_stay_unknown(protocol: str) -> None:
    """Part 0 of four survivors, parts 0 and 1 of three; the other parts are opened, and nothing is found."""
    seen = rounds(protocol)
    assert {len(of.noise) for of in seen} >= {4, 6}
    assert not any(list(open_noise(of, of.view())) for of in seen)


def test_a_part_that_is_opened_too_many_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: all parties remove the last part, although a user was lost."""
    monkeypatch.setattr(Params, "removed", lambda p, survivors: p.repaired)
    known = "noise that a sum counts on is known: 'dp noise 1' of user"
    assert any(known in text for text in findings("secagg"))


def test_seeds_in_the_clear_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: one share makes the seed, so a colluder has all of them."""
    honest = MaskedClient.share_seeds

    def alone(self: Any, roster: Any) -> Any:
        t, self.t = self.t, 1
        try:
            return honest(self, roster)
        finally:
            self.t = t

    monkeypatch.setattr(MaskedClient, "share_seeds", alone)
    assert any("noise that a sum counts on is known" in text for text in findings("secagg"))
