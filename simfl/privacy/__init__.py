"""A server's knowledge of users' updates: from sums of many rounds, and by attacks on recorded runs.

`simfl privacy sums` and `simfl privacy attack` print the results of these functions. A proof, `simfl.proof`,
varies a protocol's losses, so it is a study.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simfl.privacy.recorded import attack as attack
    from simfl.privacy.recorded import sums as sums


def __getattr__(name: str) -> Any:
    """Import on first use."""
    # The functions import training and reports; a command of another kind imports this package without them.
    if name in ("attack", "sums"):
        return getattr(import_module("simfl.privacy.recorded"), name)
    raise AttributeError(f"module 'simfl.privacy' has no attribute {name!r}")
