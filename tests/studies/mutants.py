"""Mutants of our machines: a condition changed in the source, and what finds it."""

from __future__ import annotations

import ast
import textwrap
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from types import CodeType
from typing import Any, Literal

import pytest

from simfl.privacy.leaks.coalitions import coalitions_of
from simfl.privacy.leaks.lies import LIES, lies
from simfl.studies.explore.rounds import explore
from simfl.studies.proof.cases import Small
from simfl.studies.proof.patterns import Report, make_small

Killer = Literal["explore", "leak", "lie", ""]
SIGNED = {"consistency": "signatures"}
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "secagg": ("secagg", {}),
    "lightsecagg": ("lightsecagg", {}),
    "signed": ("lightsecagg", {"U": 3, **SIGNED}),
    "async": ("lightsecagg_async", {}),
}
MOST_LOST = 2  # in a round; over a buffer one less


@dataclass(frozen=True)
class Mutant:
    """A change of one place: where, what it was and becomes, under which protocol it is tried, and what finds
    it: the invariants of sums (`explore`), those of privacy (`leak`), or a malicious server (`lie`). Where
    nothing does, why."""

    at: str
    old: str
    new: str
    case: str
    killer: Killer
    why: str = ""

    @property
    def name(self) -> str:
        return f"{self.at.partition('.')[2]}: {self.old} -> {self.new}"


def plant(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put the changed code into the function or the table where it is, whoever imported it."""
    name, _, path = mutant.at.partition(".")
    change(f"simfl.protocols.{name}", path, mutant.old, mutant.new, monkeypatch)


def change(place: str, names: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Change the only occurrence of `old` in a function, or in a table, of the module `place`."""
    module, path = import_module(place), names.split(".")
    node, text = _source(module.__file__ or "", tuple(path))
    assert text.count(old) == 1, f"{place}.{names}: found {old} {text.count(old)} times"
    changed = text.replace(old, new)
    owner: Any = module
    for part in path[:-1]:
        owner = getattr(owner, part)
    if isinstance(node, ast.FunctionDef):
        own = owner.__dict__[path[-1]]
        function = getattr(own, "fget", own)
        monkeypatch.setattr(function, "__code__", _compiled(changed, node.name))
    else:
        scope: dict[str, Any] = {}
        exec(changed, vars(module), scope)
        monkeypatch.setattr(owner, path[-1], scope[path[-1]])


@cache
def _source(file: str, path: tuple[str, ...]) -> tuple[ast.stmt, str]:
    with open(file) as text:
        source = text.read()
    body: Any = ast.parse(source).body
    for part in path:
        node = next(n for n in body if part in (getattr(n, "name", ""), *map(_target, _targets(n))))
        body = getattr(node, "body", [])
    lines = source.splitlines()[node.lineno - 1 : node.end_lineno]
    return node, textwrap.dedent("\n".join(lines)) + "\n"


def _targets(node: ast.stmt) -> list[ast.expr]:
    return node.targets if isinstance(node, ast.Assign) else []


def _target(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _compiled(function: str, name: str) -> CodeType:
    """Return a method's code as if it stood in its class, so that `super()` finds it."""
    scope: dict[str, Any] = {}
    # The names of its annotations are not there.
    wrapped = "from __future__ import annotations\ndef made(__class__):\n" + textwrap.indent(function, "    ")
    exec(f"{wrapped}\n    return {name}\n", scope)
    code: CodeType = scope["made"](object).__code__
    return code


# --- what is tried --------------------------------------------------------------------------------
def by_sums(case: str, most: int = MOST_LOST) -> bool:
    """Return True if an invariant of sums, ends, haste or honesty is violated; privacy is not tested."""
    cohort = _small(case).cohort
    cohort.__dict__["max_colluders"] = None
    return explore(cohort, affected_users=most - (case == "async")).violation is not None


def by_leak(case: str, most: int = 1) -> bool:
    """Return True if a coalition that the protocol withstands learns more than it may."""
    small = _small(case)
    report, coalitions = Report(), coalitions_of(4, range((small.cohort.max_colluders or 0) + 1))
    for one, seen in small.every_case(most):
        report.look(one, seen, coalitions)
        if report.first:
            return True
    return False


def by_lie(case: str) -> bool:
    """Return True if a lie about survivors, about who shared or about keys works."""
    small = _small(case, D=0)
    return isinstance(small, Small) and any(lies(small.setup, lie).leak is not None for lie in TRIED_LIES)


TRIED_LIES = [lie for lie in LIES if lie != "keys"]  # own keys always work without a PKI
TRY: dict[Killer, Any] = {"explore": by_sums, "leak": by_leak, "lie": by_lie}


def _small(case: str, **more: Any) -> Any:
    protocol, changes = CASES[case]
    return make_small(protocol, 4, changes={**changes, **more})


def killed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> Killer:
    """Return the first that finds a mutant, the cheapest first; nothing if none does."""
    with monkeypatch.context() as planted:
        plant(mutant, planted)
        for name, find in TRY.items():
            if find(mutant.case):
                return name
    return ""
