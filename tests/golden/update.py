"""Write the golden files anew, after a change of behaviour or of the reference profile that is meant.

    python -m tests.golden.update

`small_round.jsonl` is one round of three users, whole; `dropout_edges.sha256` is a digest of each
protocol's lines of the shipped scenario.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

from simfl import trace as rows
from tests.engine.harness import edges, lines, run, script

HERE = Path(__file__).parent


def small_round() -> str:
    """Three users, one of them lost amid its upload; with the profile of hand calculations."""
    return "".join(lines(run({"dropout": script((1, 0, "upload", "mid_send"))})))


def dropout_edges() -> str:
    """One line a protocol, as `sha256sum` writes it."""
    digests = {
        name: sha256("".join(rows.lines({name: trace})).encode()).hexdigest()
        for name, trace in edges().traces.items()
    }
    return "".join(f"{digest}  {name}\n" for name, digest in digests.items())


GOLDEN = {"small_round.jsonl": small_round, "dropout_edges.sha256": dropout_edges}

if __name__ == "__main__":
    for name, make in GOLDEN.items():
        (HERE / name).write_text(make(), encoding="utf-8")
        print(f"tests/golden/{name}")
