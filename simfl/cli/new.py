"""The beginnings of a protocol of one's own: a module, a scenario and a test that pass as they are."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from simfl.cli.common import app, tell

MODULE = '''"""TITLE: say here what it does, with its paper, and how its parties go on.

    client   ready -> uploaded
    server   upload --all, or the deadline--> done
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from simfl.blocks import Count
from simfl.dataplane.handles import F32, Handle
from simfl.dataplane.ops import Ops
from simfl.protocols.machine import (
    SERVER, Client, Effects, Entropy, Member, Message, Params, Result, Send, Update, misshapen,
)
from simfl.protocols.protocol import Problems, Protocol
from simfl.protocols.server import Server, Stage


@dataclass(frozen=True, slots=True)
class Upload(Message):
    """An update and its number of samples. Its point is where a scenario can lose the user that sends it."""

    kind = "upload"
    phase = "upload"
    point = "upload"
    delta: Handle
    weight: int


class User(Client):
    """A user: ready from the start. With an offline phase, `table` says what it takes in which state."""

    def upload(self, update: Update) -> Effects:
        return [Send(SERVER, Upload(update.delta, update.weight))]


class Aggregator(Server):
    """The server: each stage collects one message from each user, then calls the method that it names."""

    stages = {"upload": Stage("upload", "upload", "average")}

    def __init__(self, users: Iterable[int], least: int, params: Params, ops: Ops) -> None:
        super().__init__(users, ops)
        self.least, self.params = least, params

    def start(self) -> Effects:
        return self.open_stage("upload", self.users)

    def needed(self, stage: str) -> int:
        return self.least

    def reject_reason(self, sender: int, message: Any) -> str:
        if not isinstance(message, Upload) or message.weight < 1:
            return "not what its kind says"
        return misshapen(message.delta, 1, self.params.d, F32)

    def average(self, got: dict[int, Upload]) -> Effects:
        self.ops.phase("recovery")
        weights = [message.weight for message in got.values()]
        total = self.ops.real_sum([message.delta for message in got.values()], weights)
        members = tuple(Member(user, factor=1) for user in got)
        return [Result(total, self.ops.divide(total, sum(weights)), members)]


class CLASS(Protocol):
    """TITLE: a mean over at least `least` users."""

    least: Count = 1
    """Uploads without which a round is aborted."""

    def needed(self, stage: str, p: Params) -> int:
        return self.least

    def problems(self, p: Params) -> Problems:
        if self.least > p.N:
            yield "least", f"least={self.least} must not be above N={p.N}, the users of a round"

    def client(self, user: int, p: Params, ops: Ops, entropy: Entropy) -> User:
        return User(user, ops, entropy)

    def server(self, users: Sequence[int], p: Params, ops: Ops, entropy: Entropy) -> Aggregator:
        return Aggregator(users, self.least, p, ops)
'''

SCENARIO = """# simfl run FILE.yaml; simfl check FILE.yaml says what it resolves to.
seed: 1
clock: modelled
rounds: 3
population: {users: 10, devices: {slowdown: {kind: uniform, low: 8, high: 16}}}
network:
  users: {preset: 4g, latency_s: 0.04}
  server: {uplink_mbps: 1000, downlink_mbps: 1000}
  overhead_s: 0.0002
detect: {disconnect: 0.5}
deadlines: {advertise: 2, shares: 2, upload: 10, recovery: 2}
dropout: {rate: 0.1}
privacy: {T: 2, D: 3}
quantization: {clip: 4.0}
learning: {epochs: 1}
protocols:
  fedavg:
  FILE: {module: FILE.py:CLASS, least: 2}
  lightsecagg:
"""

TEST = '''"""TITLE: exact sums, an abort below the threshold, and all that ours are held to."""

from pathlib import Path

import simfl
from simfl.studies.verify import Subject, verify

HERE = Path(__file__).parent


def test_every_aggregate_is_exact():
    summary = simfl.run(HERE / "FILE.yaml").summary["protocols"]["FILE"]
    assert [r["aggregate_exact"] for r in summary["rounds"]] == [True, True, True]


def test_too_few_are_an_abort():
    result = simfl.run(HERE / "FILE.yaml", {"protocols.FILE.least": 10, "rounds": 1})
    (only,) = result.summary["protocols"]["FILE"]["rounds"]
    assert only["reason"] == "upload: 9 users answered, 10 needed"


def test_it_is_held_to_what_ours_are_held_to():
    subject = Subject(f"{HERE / 'FILE.py'}:CLASS", {})
    assert [(name, found) for name, _, found in verify(subject) if found] == []
'''

new = typer.Typer(help="Begin something of your own.", no_args_is_help=True)
app.add_typer(new, name="new")


@new.callback()
def _group() -> None:
    """Begin something of your own."""


@new.command()
def protocol(
    name: Annotated[str, typer.Argument(help="Small letters, digits and _: a Python module's name.")],
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder.")] = Path(),
) -> None:
    """Write a protocol's module, a scenario and a test that pass; change them from there."""
    if not re.fullmatch(r"[a-z][a-z0-9_]{0,60}", name):
        rule = "must be small letters, digits and _, beginning with a letter"
        raise typer.BadParameter(f"{name!r:.80} {rule}", param_hint="NAME")
    words = {
        "FILE": name,
        "CLASS": name.title().replace("_", ""),
        "TITLE": name.replace("_", " ").capitalize(),
    }
    files = {f"{name}.py": MODULE, f"{name}.yaml": SCENARIO, f"test_{name}.py": TEST}
    there = [file for file in files if (out / file).exists()]
    if there:
        raise typer.BadParameter(f"{out / there[0]} is there already", param_hint="NAME")
    out.mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        for word, value in words.items():
            text = text.replace(word, value)
        (out / file).write_text(text, encoding="utf-8")
        tell(f"Written to {out / file}")
    tell(f"Try: simfl run {out / name}.yaml; simfl verify {out / name}.py:{words['CLASS']}")
