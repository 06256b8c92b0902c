"""Count the files of simfl that one user's update passes, from the end of its training to the aggregate.

    python benchmarks/update_path.py

One user, one round of FedAvg under the modelled clock in shadow, without losses. A file counts if one of its
functions is called between the training's row and the aggregate's, so clocks, links and the environment are
in the list. A file is marked with * if one of its functions has the update among its arguments: its handle, a
message or an effect with it, or the job, the transmission or the user's part that holds it. PYTHONPATH
chooses the checkout.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import simfl
from simfl.dataplane.handles import Handle
from simfl.engine.devices import Job
from simfl.engine.user_round import Transmission, UserRound
from simfl.protocols.machine import Message, Result, Send, Update
from simfl.trace.rows import TRAIN, Aggregated, Step, Trace

HOME = Path(simfl.__file__).parent
SCENARIO: dict[str, Any] = {
    "seed": 1,
    "clock": "modelled",
    "payload": "shadow",
    "rounds": 1,
    "population": {"users": 1, "devices": {"slowdown": 10.0, "cores": 1}},
    "network": {
        "users": {"uplink_mbps": 8.0, "downlink_mbps": 16.0, "latency_s": 0.01},
        "server": {"uplink_mbps": 1000.0, "downlink_mbps": 1000.0},
        "overhead_s": 0.001,
    },
    "detect": "timeout",
    "deadlines": {"upload": 5.0},
    "learning": {"epochs": 1, "batch_size": 50, "lr": 0.5},
    "protocols": ["fedavg"],
}
CARRIERS = (Handle, Message, Update, Send, Result, Job, Transmission, UserRound)


def carries(frame: FrameType) -> bool:
    """Return True if an argument is the update, or holds it."""
    # At a call the local variables are the arguments; a generator that is resumed has its others, too.
    arguments = list(frame.f_locals.values())
    inner = [each for argument in arguments if isinstance(argument, list) for each in argument]
    return any(isinstance(each, CARRIERS) for each in (*arguments, *inner))


def passed() -> tuple[Counter[str], set[str]]:
    """Run the round; return the calls between the two rows by file below simfl/, and the files marked."""
    calls: Counter[str] = Counter()
    marked: set[str] = set()
    add = Trace.add

    def called(frame: FrameType, event: str, argument: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event == "call" and path.is_relative_to(HOME):
            name = path.relative_to(HOME).as_posix()
            calls[name] += 1
            if carries(frame):
                marked.add(name)

    def watched(trace: Trace, row: Any) -> int:
        if isinstance(row, Step) and row.call == TRAIN:
            sys.setprofile(called)
        elif isinstance(row, Aggregated):
            sys.setprofile(None)
        return add(trace, row)

    Trace.add = watched  # type: ignore[method-assign]
    try:
        result = simfl.run(SCENARIO)
    finally:
        Trace.add = add  # type: ignore[method-assign]
        sys.setprofile(None)
    assert any(isinstance(row, Aggregated) for row in result.traces["fedavg"])
    return calls, marked


def main() -> None:
    calls, marked = passed()
    for name, count in sorted(calls.items(), key=lambda item: (item[0] not in marked, -item[1])):
        print(f"{'*' if name in marked else '':2}{count:4} calls  {name}")
    engine = sum(name.startswith("engine/") for name in marked)
    print(f"{len(marked)} files get the update, {engine} of them in engine/")
    print(f"{len(calls)} files and {calls.total()} calls in all")


if __name__ == "__main__":
    main()
