"""Import names of modules from before they were moved, for one release, with a DeprecationWarning.

An old name gives the very module of the new one, so that `isinstance` holds across both.
"""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from importlib.machinery import ModuleSpec
from types import ModuleType

_CONFIG = "blocks digests kinds python_files quantities texts unpacking"
MOVED = {
    **{name: f"config.{name}" for name in _CONFIG.split()},
    "cluster": "connect",
    "experiment": "runs",
    "folder": "runs.folder",
    "importers": "connect.importers",
    "population": "world",
    "profiles": "world.profiles",
    "results": "runs.results",
    "selection": "world",
    "simulation": "runs.simulation",
    "trackers": "connect.trackers",
    # Modules that left their package. A package above is given by its new name.
    "privacy.circuits": "runs.multi_round_privacy.circuits",
    "privacy.metrics": "runs.multi_round_privacy.metrics",
    "privacy.modular": "runs.multi_round_privacy.modular",
    "privacy.weak": "runs.multi_round_privacy.weak",
    "protocols.definitions": "protocols.machine",
    "protocols.lightsecagg_async_messages": "protocols.lightsecagg_async_client",
    "reports.by_class": "reports.page",
    "reports.compare_page": "studies.comparison.page",
    "reports.comparison": "studies.comparison.report",
    "reports.participation": "reports.page",
    "runs.folder.earlier": "runs.folder.outdated",
    "runs.results.class_figures": "runs.results.breakdown",
    "runs.results.compare": "studies.comparison.cases",
    "runs.results.reasons": "runs.results.round_summary",
    "runs.results.text": "trace.text",
    "runs.results.trace": "trace.rows",
    "runs.results.trace_codes": "trace.codes",
    "runs.results.trace_reader": "trace.reader",
    "scenario.yaml_tree": "config.yaml_tree",
    "studies.leaks": "privacy.leaks",
    "studies.recorded": "privacy.recorded",
    "studies.watch": "runs.watch",
    "privacy.leaks.cases": "studies.proof.cases",
    "privacy.leaks.sessions": "studies.proof.sessions",
    "privacy.leaks.swaps": "studies.proof.swaps",
    "privacy.leaks.sweep": "studies.proof.patterns",
    "world.csv_files": "config.csv_files",
    "world.schemes": "world.selection",
    "world.variations": "world.link_models",
}
"""Old name of a module or package of simfl -> its new name. A name may move in several steps, since
`from simfl.results import trace` asks for `trace` of the package that `simfl.results` is now."""


def new_name(old: str) -> str:
    """Return the name of a module of simfl today, from any that it had, both without `simfl.`.

    >>> new_name("results.trace"), new_name("studies.leaks.cases"), new_name("trace.rows")
    ('trace.rows', 'studies.proof.cases', 'trace.rows')
    """
    prefix, rest = old, ""
    # The longest prefix that moved decides, so that `privacy.leaks.cases` goes another way than
    # `privacy.leaks`.
    while prefix:
        if prefix in MOVED:
            # Again, as a module may have moved several times.
            return new_name(MOVED[prefix] + rest)
        prefix, dot, last = prefix.rpartition(".")
        rest = f"{dot}{last}{rest}"
    return old


class MovedModules:
    """Finder and loader of modules by their old names."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        package, _, old = name.partition(".")
        # None lets the other finders look: all imports of Python pass here.
        if package != "simfl" or (new := new_name(old)) == old:
            return None
        return ModuleSpec(name, self, origin=f"simfl.{new}")  # type: ignore[arg-type]

    def create_module(self, spec: ModuleSpec) -> None:
        """Return None: a module returned here would get the old name's spec (see `exec_module`)."""

    def exec_module(self, module: ModuleType) -> None:
        """Put the module instead of an empty one, which importing allows a loader to do."""
        spec = module.__spec__
        assert spec is not None
        assert spec.origin is not None
        sys.modules[spec.name] = import_module(spec.origin)
        # Level 2 is the importer's line, as frames of importlib are not counted.
        warnings.warn(f"{spec.name} is now {spec.origin}", DeprecationWarning, stacklevel=2)


def install() -> None:
    """Make old names importable."""
    # Before the finder of files: it would load `simfl.cluster.worker`, from the path of what `simfl.cluster`
    # is now, a second time.
    sys.meta_path.insert(0, MovedModules())
