"""Who shares with whom. A graph maps each user to its sorted closed neighbourhood: itself included."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Graph = Mapping[int, tuple[int, ...]]


def complete(users: Sequence[int]) -> Graph:
    """Everyone with everyone: SecAgg (Bonawitz 2017)."""
    everyone = tuple(sorted(users))
    return dict.fromkeys(everyone, everyone)
