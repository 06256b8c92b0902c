"""The papers' attacks on scenarios of ours, each run, recorded and attacked in a temporary folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from tempfile import TemporaryDirectory
from typing import Any

from papers.entry import Place
from papers.running import has
from simfl.privacy import attack
from simfl.privacy.attacks.attack import Finding

NAMES = {"fedavg": "federated averaging", "secagg": "SA", "ccesa": "CCESA"}
"""Names of the entries whose uploads are attacked."""


@dataclass(frozen=True)
class Attack:
    """An attack on a scenario."""

    kind: str
    """Kind of the attack."""
    scenario: str
    """Name of the scenario."""
    dataset: str
    """Data set of the paper, which cannot be shipped."""
    settings: Mapping[str, Any]
    """Values of the scenario on that data set, by dotted key."""

    @property
    def on_papers_data(self) -> bool:
        """True if SIMFL_DATA has the paper's data set."""
        return has(self.dataset)

    @property
    def data_in_words(self) -> str:
        """The data of the run in words; empty for the bundled digits."""
        if not self.on_papers_data:
            return ""
        values = ", ".join(f"{key} {value}" for key, value in self.settings.items())
        return f"{self.dataset} from a local folder, with {values}"

    def findings(
        self, place: Place, seed: int, changes: Mapping[str, Any] | None = None, **options: Any
    ) -> tuple[Finding, ...]:
        """Run the scenario with changes by dotted key, attack it with options, and return the findings."""
        theirs = {"learning.dataset": self.dataset, **self.settings} if self.on_papers_data else {}
        scenario = place.root / "scenarios" / f"{self.scenario}.yaml"
        with TemporaryDirectory() as folder:
            overrides = {**theirs, **(changes or {})}
            return attack(self.kind, scenario, options, overrides, folder, seed).outcome.findings


def of(found: Sequence[Finding], entry: str, attacked: str) -> Mapping[str, float]:
    """Return the numbers of an entry and of what was attacked there."""
    return next(f.numbers for f in found if (f.entry, f.attacked) == (entry, attacked))


def of_uploads(found: Sequence[Finding], entry: str) -> Mapping[str, float]:
    """Return the numbers of an entry's uploads, which all but federated averaging mask."""
    return of(found, entry, "uploads" if entry == "fedavg" else "masked uploads")
