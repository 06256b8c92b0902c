"""Clusters by the scheme of their address: simfl's own (`simfl.connect.remote`), and those of packages.

A package brings one by an entry point of the group `simfl.clusters`, named by the scheme: a module, or any
object, that has `check` and `connected`.
"""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.metadata import entry_points
from typing import Protocol

from simfl.dataplane.remote import Placement
from simfl.errors import BadInput
from simfl.learning.trainer import Trainer
from simfl.scenario.schema import Scenario

GROUP = "simfl.clusters"
OPTION = "--cluster"


class Cluster(Protocol):
    """A run's connection to its workers."""

    ways: Mapping[str, tuple[str, int]]
    """By protocol entry: how it is trained there, and the clients that are trained together."""

    def places(self, entry: str, trainer: Trainer) -> Sequence[Placement]:
        """Return the kernels of an entry that are executed on the cluster."""


class Connector(Protocol):
    """Connects to the clusters of a scheme."""

    def check(self, address: str, scenario: Scenario) -> object:
        """Refuse, with BadInput, an address or a scenario that it cannot train."""

    def connected(self, address: str, scenario: Scenario) -> AbstractContextManager[Cluster]:
        """Return a connection whose workers can all train the scenario; BadInput if there is none."""


def connector(address: str) -> Connector:
    """Return what connects to an address, such as `dask://HOST:PORT`, by its scheme.

    Raises:
        BadInput: no cluster has such a scheme.
    """
    points = {point.name: point for point in entry_points(group=GROUP)}
    scheme = address.partition(":")[0]
    if scheme not in points:
        schemes = ", ".join(f"{name}:" for name in sorted(points))
        raise BadInput(f"{OPTION}: {address!r:.80} must begin with one of {schemes}")
    found: Connector = points[scheme].load()
    return found
