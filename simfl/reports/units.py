"""Numbers, lists of numbers and a scenario's world as a person reads them."""

from collections.abc import Sequence
from typing import Any

from simfl.blocks import Block
from simfl.scenario.schema import Scenario

UNITS = {"_mbps": " Mbit/s", "_gb": " GB", "_s": " s"}  # ends of names and the units that they mean
MAX_VALUES = 4  # of a list, that are shown one by one


def three_figures(value: float) -> str:
    """A number with three figures, or more before its point.

    >>> three_figures(0.63), three_figures(12.34), three_figures(1234.5)
    ('0.630', '12.3', '1234')
    """
    return f"{value:.{3 if value < 1 else 2 if value < 10 else 1 if value < 100 else 0}f}"


def seconds(ns: float) -> str:
    """Nanoseconds in the unit that fits, in three figures.

    >>> seconds(3_350_000_000), seconds(12_155), seconds(0)
    ('3.35 s', '12.2 µs', '0 s')
    """
    for unit, size in (("s", 10**9), ("ms", 10**6), ("µs", 10**3)):
        if ns >= size:
            return f"{three_figures(ns / size)} {unit}"
    return f"{ns:.0f} ns" if ns else "0 s"


def percent(part: float, whole: float) -> str:
    """A share, `42 %`; below one percent, `0.4 %`."""
    share = 100 * part / whole if whole else 0.0
    return f"{share:.1f} %" if 0 < share < 1 else f"{share:.0f} %"


def listed(values: Sequence[object], most: int) -> str:
    """Values with commas; of more than `most` the first ones, and how many are left.

    >>> listed(range(9), 3)
    '0, 1, 2 and 6 more'
    """
    more = f" and {len(values) - most} more" if len(values) > most else ""
    return ", ".join(map(str, values[:most])) + more


def world_facts(s: Scenario) -> list[tuple[str, str]]:
    """(name, value) of the world that all protocols of a scenario share."""
    devices, learning, overhead = s.population.devices, s.learning, seconds(s.network.overhead_s * 1e9)
    varies = f"; each training varies by {devices.training_noise:g}" if devices.training_noise else ""
    blocks = {"Buffer": s.buffer, "Privacy": s.privacy, "Quantization": s.quantization, "Targets": s.targets}
    batches = f"batches of {learning.batch_size}, step size {learning.lr:g}"
    found = {
        "Users": f"{s.population.users}, {devices.cores} cores each",
        "Devices": f"slowdown {in_words(devices.slowdown)}{varies}",
        "Availability": in_words(s.population.availability),
        "Selection": in_words(s.selection),
        "Users' links": in_words(s.network.users),
        "Server": f"{in_words(s.server)}; {in_words(s.network.server)}; {overhead} a message",
        "Drop-outs": in_words(s.dropout),
        "Losses noticed by": in_words(s.detect),
        "Deadlines": "; ".join(f"{name} {in_words(d)}" for name, d in s.deadlines.given.items()),
        **{name: in_words(block) for name, block in blocks.items() if block is not None},
        "Data": f"{in_words(learning.dataset)}, {in_words(learning.partition)}",
        "Model": in_words(learning.model),
        "Training": f"{learning.epochs} epochs, {batches}",
        "Offline phase": "beside training" if s.overlap else "before training",
        "Payload": "computed" if s.payload == "real" else "shadow: sizes and counts only",
    }
    return [(name, value or "none") for name, value in found.items()]


def in_words(value: Any, name: str = "") -> str:
    """A value of a scenario: of a block its kind first and then its fields, without those not set."""
    if isinstance(value, Block):
        if getattr(value, "kind", "") == "fixed":
            return "".join(in_words(v, key) for key, v in value if key != "kind")
        fields = [(key, getattr(value, key)) for key in type(value).model_fields]
        return ", ".join(_field(key, v) for key, v in fields if v is not None)
    if isinstance(value, tuple):
        if value and isinstance(value[0], Block | tuple):
            return f"{len(value)} listed"
        return listed([in_words(v, name) for v in value], MAX_VALUES)
    unit = next((unit for end, unit in UNITS.items() if name.endswith(end)), "")
    return (f"{value:g}" if isinstance(value, float) else str(value).replace("_", " ")) + unit


def _field(key: str, value: Any) -> str:
    if key in ("kind", "value", "rate", "losses"):
        return in_words(value)
    name = key
    for end in UNITS:
        name = name.removesuffix(end)
    return f"{name.replace('_', ' ')} {in_words(value, key)}"
