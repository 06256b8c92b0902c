"""Rounds that differ in nothing are run once.

A round asks what becomes of a user only when that user sends, and what it asks next follows from the
answers so far. So rounds form a tree: a node is a question (user, point), a branch an answer, a leaf what
the round came to. A pattern that answers every question on a path alike leads to the very same round;
where most users are lost early, most patterns do. The laws are still held to each pattern by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from simfl.studies.explore import invariants
from simfl.studies.explore.invariants import Observation, Rules

Fates = Callable[[int, Any], str]
Answers = tuple[str, ...]


class Leaf(NamedTuple):
    """What a round came to: its members or the reason of its abort, and the laws that it broke by itself."""

    members: tuple[int, ...] | None
    reason: str | None
    broken: tuple[str, ...]
    rules: Rules


class Tree:
    """All rounds of a cohort that were run so far. run: a round under the fates of its users."""

    def __init__(self, run: Callable[[Fates], Observation]) -> None:
        self.run = run
        self.questions: dict[Answers, tuple[int, Any]] = {}
        self.leaves: dict[Answers, Leaf] = {}

    def find(self, fate: Fates) -> Leaf:
        """What a round under these fates comes to."""
        answers: Answers = ()
        while answers in self.questions:
            answers = (*answers, fate(*self.questions[answers]))
        return self.leaves[answers] if answers in self.leaves else self._grow(fate)

    def _grow(self, fate: Fates) -> Leaf:
        answers: Answers = ()

        def asked(user: int, message: Any) -> str:
            nonlocal answers
            self.questions[answers] = user, type(message)
            answers = (*answers, fate(user, message))
            return answers[-1]

        seen = self.run(asked)
        leaf = Leaf(seen.members, seen.out.reason, tuple(invariants.of_itself(seen)), seen.rules)
        self.leaves[answers] = leaf
        return leaf
