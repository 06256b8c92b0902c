"""A single pattern of the explorer, from the text that it prints or from the scenario that it writes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from simfl.errors import BadInput
from simfl.protocols.protocol import Mode
from simfl.scenario.load import load, resolved_yaml
from simfl.scenario.schema import Scenario
from simfl.studies.explore.buffered import BufferCohort
from simfl.studies.explore.cohort import WORDS, Detect, Fate, Pattern, RoundCohort, describe
from simfl.studies.explore.rounds import AnyCohort, judge, make_cohort

_PART = re.compile(rf"user (\d+) ({'|'.join(WORDS.values())}) (\w+)")
_DETECT = re.compile(r"(.*) \((\w+)\)(?:: .*)?", re.S)


@dataclass(frozen=True)
class Pinned:
    """A pattern and its cohort."""

    cohort: AnyCohort
    pattern: Pattern
    detect: Detect

    def __str__(self) -> str:
        return f"{self.cohort.protocol}, {describe(self.pattern)} ({self.detect})"

    @property
    def scenario(self) -> Scenario:
        return self.cohort.replayable(self.pattern, self.detect)

    def broken(self) -> tuple[str, ...]:
        """Return the laws that the machines break under the pattern: over the loopback, and on the engine."""
        found = [judge(self.cohort, self.pattern, self.detect, replay)[1] for replay in (False, True)]
        return tuple(dict.fromkeys(law for laws in found for law in laws))


def written(file: Path) -> Pinned:
    """Return the pattern of a scenario that `simfl explore` wrote; BadInput for any other scenario."""
    scenario = load(file)
    (name, kind), *others = scenario.protocols.items()
    cohort = (BufferCohort if kind.mode is Mode.BUFFERED else RoundCohort)(scenario, name)
    losses = {x.user: Fate(x.at, x.when, x.delay_s) for x in getattr(scenario.dropout, "losses", ())}
    pattern = tuple(losses.get(user) for user in range(cohort.users))
    text = resolved_yaml(scenario)
    for detect in () if others else cohort.detects:
        if resolved_yaml(cohort.replayable(pattern, detect)) == text:
            return Pinned(cohort, pattern, detect)
    raise BadInput(f"{file}: not a scenario that simfl explore writes")


def described(
    text: str, protocol: str, users: int = 4, seed: int = 0, overrides: Mapping[str, Any] | None = None
) -> Pinned:
    """Return the pattern that a text describes as `simfl explore` prints it, of a cohort of that command.

    >>> print(described("user 1 lost before upload, user 2 late at recovery (timeout)", "lightsecagg"))
    lightsecagg, user 1 lost before upload, user 2 late at recovery (timeout)
    """
    cohort = make_cohort(protocol, users, seed, overrides)
    match = _DETECT.fullmatch(text.strip())
    if match is None or match[2] not in cohort.detects:
        raise BadInput(
            f"{text!r}: expected a pattern that ends with {' or '.join(cohort.detects)} in brackets"
        )
    (detect,) = (known for known in get_args(Detect) if known == match[2])
    fates = {(WORDS[fate.when], fate.point): fate for fate in cohort.fates(detect)}
    met: dict[int, Fate] = {}
    for part in match[1].split(", ") if match[1] != "nobody lost" else []:
        found = _PART.fullmatch(part)
        fate = fates.get((found[2], found[3])) if found else None
        if found is None or fate is None or int(found[1]) >= users:
            known = ", ".join(f"{words} {point}" for words, point in fates)
            raise BadInput(f"{part!r}: expected user 0 to {users - 1} and one of: {known}")
        met[int(found[1])] = fate
    return Pinned(cohort, tuple(met.get(user) for user in range(users)), detect)
