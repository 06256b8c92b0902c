"""A scenario's world in a dozen short lines."""

from __future__ import annotations

from typing import Any

from simfl.blocks import Block
from simfl.reports.units import seconds
from simfl.scenario.schema import Scenario

UNITS = {"_mbps": " Mbit/s", "_gb": " GB", "_s": " s"}
"""Ends of names and the units that they mean."""

LISTED = 4
"""Entries of a list that are shown one by one."""


def facts(s: Scenario) -> list[tuple[str, str]]:
    """(what, how) of the world that all protocols of a scenario share."""
    devices, links, link = s.population.devices, s.network.users, s.network.server
    found = [
        ("Users", f"{s.population.users}, {devices.cores} cores each"),
        ("Devices", f"slowdown {said(devices.slowdown)}" + _noise(devices.training_noise)),
        ("Availability", said(s.population.availability)),
        ("Selection", said(s.selection)),
        ("Users' links", said(links)),
        ("Server", f"{said(s.server)}; {said(link)}; {seconds(s.network.overhead_s * 1e9)} a message"),
        ("Drop-outs", said(s.dropout)),
        ("Losses noticed by", said(s.detect)),
        ("Deadlines", "; ".join(f"{name} {said(d)}" for name, d in s.deadlines.given.items())),
    ]
    for what, block in (("Buffer", s.buffer), ("Privacy", s.privacy), ("Quantization", s.quantization)):
        if block is not None:
            found.append((what, said(block)))
    learning = s.learning
    found += [
        ("Data", f"{said(learning.dataset)}, {said(learning.partition)}"),
        ("Model", said(learning.model)),
        (
            "Training",
            f"{learning.epochs} epochs, batches of {learning.batch_size}, step size {learning.lr:g}",
        ),
        ("Offline phase", "beside training" if s.overlap else "before training"),
        ("Payload", "computed" if s.payload == "real" else "shadow: sizes and counts only"),
    ]
    return [(what, how or "none") for what, how in found]


def said(value: Any, name: str = "") -> str:
    """A value of a scenario in words: its kind first, then what it says, without what is not set."""
    if isinstance(value, Block):
        if getattr(value, "kind", "") == "fixed":
            return "".join(said(v, key) for key, v in value if key != "kind")
        parts = [(key, getattr(value, key)) for key in type(value).model_fields]
        told = [said(v) if k == "kind" else _named(k, v) for k, v in parts if v is not None]
        return ", ".join(told)
    if isinstance(value, tuple):
        shown = ", ".join(said(v, name) for v in value[:LISTED])
        return f"{len(value)} listed" if value and isinstance(value[0], Block) else shown + _more(value)
    unit = next((unit for end, unit in UNITS.items() if name.endswith(end)), "")
    return (f"{value:g}" if isinstance(value, float) else str(value).replace("_", " ")) + unit


def _named(key: str, value: Any) -> str:
    if key in ("value", "rate", "losses"):
        return said(value)
    words = key
    for end in UNITS:
        words = words.removesuffix(end)
    return f"{words.replace('_', ' ')} {said(value, key)}"


def _more(value: tuple[Any, ...]) -> str:
    return f" and {len(value) - LISTED} more" if len(value) > LISTED else ""


def _noise(sd: float) -> str:
    return f"; each training varies by {sd:g}" if sd else ""
