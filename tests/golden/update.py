"""Write the golden files anew, after a change of behaviour or of the reference profile that is meant.

    python -m tests.golden.update

`small_round.jsonl` is one round of three users, whole; `digests.txt` has digests of each case's traces and
summaries (`tests.golden.cases`), which are the same for a real run and a shadow.
"""

from __future__ import annotations

from pathlib import Path

import simfl
from tests.engine.harness import lines, run, script
from tests.golden.cases import SMALL, STUDIES, WHOLE, scenario
from tests.golden.digests import digests

HERE = Path(__file__).parent


def small_round() -> str:
    """Three users, one of them lost amid its upload; with the profile of hand calculations."""
    return "".join(lines(run({"dropout": script((1, 0, "upload", "mid_send"))})))


def all_digests() -> str:
    """Return a line for each case and entry: its trace's digest, its summary's, and its name."""
    return "".join(f"{line}\n" for name in (*SMALL, *WHOLE, *STUDIES) for line in of_case(name, "shadow"))


def of_case(name: str, payload: str) -> list[str]:
    """Return the lines of one case."""
    result = simfl.run(scenario(name, {"payload": payload}))
    return [f"{digest} {name}:{entry}" for entry, digest in digests(result).items()]


GOLDEN = {"small_round.jsonl": small_round, "digests.txt": all_digests}

if __name__ == "__main__":
    for name, make in GOLDEN.items():
        (HERE / name).write_text(make(), encoding="utf-8")
        print(f"tests/golden/{name}")
