"""Attacks of the papers on scenarios of ours: run, recorded and attacked in a folder that is then removed."""

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
"""Of the entries whose uploads are attacked."""


@dataclass(frozen=True)
class Attack:
    """An attack, the scenario that it is made on, and a data set of the paper that cannot be shipped.

    settings: what the scenario takes on that data set, where SIMFL_DATA has it, by dotted key.
    """

    kind: str
    scenario: str
    dataset: str
    settings: Mapping[str, Any]

    @property
    def there(self) -> bool:
        """Whether it runs on the paper's data."""
        return has(self.dataset)

    @property
    def told(self) -> str:
        """What it runs on, in words; nothing where that is the bundled digits."""
        if not self.there:
            return ""
        values = ", ".join(f"{key} {value}" for key, value in self.settings.items())
        return f"{self.dataset} from a local folder, with {values}"

    def findings(
        self, place: Place, seed: int, changes: Mapping[str, Any] | None = None, **options: Any
    ) -> tuple[Finding, ...]:
        """Run the scenario with changes by dotted key, attack it with options, and return what was found."""
        theirs = {"learning.dataset": self.dataset, **self.settings} if self.there else {}
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
