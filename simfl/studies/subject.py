"""The protocol that `simfl verify` looks at, small cohorts of it, and a check's reason not to try."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from simfl.errors import BadInput
from simfl.runs.build import build
from simfl.runs.watch import Call, WatchedRun, run_watched
from simfl.scenario.load import load
from simfl.studies.explore.rounds import AnyCohort, make_cohort
from simfl.studies.proof.cases import Small, SmallBuffer
from simfl.studies.proof.patterns import make_small

USERS = 5
USERS_TO_LOSE = 4  # in every pattern
PROMISES_NOTHING = "the protocol promises nothing (`max_colluders`)"

Findings = Iterator[str]


class NotTried(Exception):
    """A check has nothing to look at; the text says why, as what follows `because`."""


@dataclass(frozen=True)
class Subject:
    """A protocol to verify.

    Attributes:
        protocol: its word, or `path.py:Name`.
        overrides: changes of its scenarios by dotted key.
    """

    protocol: str
    overrides: Mapping[str, Any]

    @cached_property
    def cohort(self) -> AnyCohort:
        return make_cohort(self.protocol, USERS, overrides=self.overrides)

    @property
    def colluders(self) -> int:
        """The colluders whom a cohort of `USERS_TO_LOSE` withstands. NotTried if that is not promised."""
        withstands = self.small().cohort.withstands
        if withstands is None:
            raise NotTried(PROMISES_NOTHING)
        return withstands

    @property
    def hopes(self) -> bool:
        """True if it masks updates without a promise for certain, as over a sparse graph."""
        small = self.small().cohort
        return small.kind.offline and small.withstands is None

    def small(self, **changes: Any) -> Small | SmallBuffer:
        """Return a cohort of `USERS_TO_LOSE`, for rounds on symbols; BadInput where changes do not fit."""
        return make_small(self.protocol, USERS_TO_LOSE, changes={**self.overrides, **changes})

    def rounds(self, **changes: Any) -> Small:
        """Do as `small`; NotTried for a protocol over a buffer."""
        small = self.small(**changes)
        if not isinstance(small, Small):
            raise NotTried("only rounds are looked at so, and the protocol has a buffer")
        return small

    def with_colluders(self, T: int) -> list[dict[str, int]]:
        """Return changes of a cohort: none, and as many colluders where its settings allow them."""
        try:
            self.small(T=T)
        except BadInput:
            return [{}]
        return [{}, {"T": T}]

    def run(self, changes: Mapping[str, Any], call: Call | None = None) -> WatchedRun:
        """Run three rounds in which a user of five is lost in the second, with changes of the scenario."""
        lost = {"user": 1, "round": 1, "at": "upload", "when": "mid_send"}
        base = {"rounds": 3, "dropout": {"kind": "script", "losses": [lost]}}
        return run_watched(build(load(self.cohort.scenario, {**base, **changes})), self.cohort.protocol, call)
