"""The views of the server in a recorded run, put together from its folder.

Invariant: a view holds users' uploads as the run's protocol sends them. Where masks hide an update,
the protocol's own machines mask the recorded one again, over the loopback and under the run's seeds: the bits
of the run itself where the same users took part to the end.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from simfl.config.blocks import as_name
from simfl.config.digests import checked, names_in
from simfl.crypto.quantize import signed
from simfl.dataplane.eager import EagerOps
from simfl.dataplane.handles import F32, Handle
from simfl.engine.clocks import ConstantClock
from simfl.errors import BadInput
from simfl.learning.trainer import one_thread
from simfl.privacy import attack_report
from simfl.privacy.attacks.attack import Attack, Outcome, Truth, View
from simfl.privacy.attacks.registry import ATTACKS
from simfl.privacy.leaks.views import handles
from simfl.privacy.least_squares import WindowResult, attack_window, read_updates
from simfl.protocols.loopback import LoopbackBuffer, run_round
from simfl.protocols.machine import SERVER, Message, Update
from simfl.random_streams import Streams
from simfl.runs.build import Experiment, build
from simfl.runs.folder.disk import write_text
from simfl.runs.folder.latest import need_run, run_folder
from simfl.runs.results import metrics
from simfl.runs.simulation import run
from simfl.scenario.load import load
from simfl.scenario.schema import Scenario
from simfl.trace import reader as trace_reader
from simfl.trace.text import first_problem

Stage = Callable[[str], None]
Target = str | Path | Mapping[str, Any] | Scenario
Seen = dict[int, tuple[NDArray[np.float32], int]]


@dataclass(frozen=True)
class Attacked:
    """An attack on a run, whose findings are in the run's folder."""

    attack: Attack
    outcome: Outcome
    folder: Path
    files: tuple[str, str]
    """Names of the findings and of the figure: attack-KIND.json, attack-KIND.svg."""


def sums(
    target: Target,
    first: int | None = None,
    last: int | None = None,
    overrides: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    watch: Stage | None = None,
) -> dict[str, WindowResult]:
    """Reconstruct users' updates from the sums of many rounds, by least squares; return the result by entry.

    Args:
        target: The folder of a run with `record_updates: true`, or a scenario to run first.
        first: First round of the window; unless given, it has the last 2 N rounds.
        last: Last round of the window; the run's last unless given.
        overrides: Values of the scenario by dotted key.
        out: Folder of the scenario's run; a new one in `runs/` unless given.
        watch: Called with a sentence as each stage begins.

    Raises:
        BadInput: The run recorded no updates, or has no aggregate in the window.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as out:
    ...     results = sums("scenarios/reconstruction.yaml", overrides={"rounds": 2}, out=out)
    >>> results["random"].aggregates
    2
    """
    folder = _folder_of(target)
    if folder is None:
        folder = _run_into(out, _scenario_to_run(target, overrides), watch or _ignore)
    files = _update_files(folder)
    return {file.stem.removeprefix("updates-"): attack_window(file, first, last) for file in files}


def attack(
    kind: str,
    target: Target,
    settings: Mapping[str, Any] | None = None,
    overrides: Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    seed: int = 1,
    watch: Stage | None = None,
) -> Attacked:
    """Attack users' updates with what the server saw in a recorded run; write a table and a figure there.

    Args:
        kind: A kind of `simfl list attacks`, or `path.py:Name`.
        target: The folder of a run with `record_updates: true`, or a scenario to run first.
        settings: Settings of the attack, such as {"steps": 500}.
        overrides: Values of the scenario by dotted key.
        out: Folder of the scenario's run; a new one in `runs/` unless given.
        seed: Seed of the attack's own draws.
        watch: Called with a sentence as each stage begins.

    Raises:
        BadInput: The run, its data or how they are dealt rule the attack out; nothing was run then.

    >>> from tempfile import TemporaryDirectory
    >>> with TemporaryDirectory() as out:
    ...     done = attack("least_squares", "scenarios/reconstruction.yaml", overrides={"rounds": 2}, out=out)
    >>> done.files
    ('attack-least_squares.json', 'attack-least_squares.svg')
    """
    begin = watch or _ignore
    chosen, folder = _attack_of(kind, settings or {}), _folder_of(target)
    s = _scenario_to_run(target, overrides) if folder is None else scenario_of(folder)
    begin(f"{s.name}: its data")
    study = build(s, begin)
    for name, trainer in study.trainers.items():
        if unknown := trainer.beyond_attacks:
            raise BadInput(f"{s.name}, {name}: attacks do not know its model: {unknown}")
        if (problem := chosen.problem(trainer.split, trainer.parts)) is not None:
            raise BadInput(f"{s.name}, {name}: {problem}")
    folder = folder or _run_into(out, s, begin)
    outcome = Outcome(())
    with one_thread():
        for view, truth in views(folder, study):
            begin(f"attacking {view.entry}")
            outcome += chosen(view, truth, Streams(seed).rng("attack"))
    name = as_name(kind.rpartition(":")[2])
    text = json.dumps(attack_report.record(chosen, outcome, s.name, seed), indent=2, allow_nan=False) + "\n"
    figure = attack_report.svg(f"{name.replace('_', ' ')} on {s.name}", outcome)
    files = (f"attack-{name}.json", f"attack-{name}.svg")
    for file, content in zip(files, (text, figure), strict=True):
        write_text(folder / file, content)
    return Attacked(chosen, outcome, folder, files)


def _ignore(stage: str) -> None:
    """Show nothing of a stage."""


def _attack_of(kind: str, settings: Mapping[str, Any]) -> Attack:
    """Return an attack by its word, or path.py:Name, with settings; BadInput for a wrong one."""
    cls = ATTACKS.find(kind)
    try:
        return cls(**settings)
    except ValidationError as error:
        raise BadInput(f"{kind}: {first_problem(error)}") from None


def _folder_of(target: Target) -> Path | None:
    """Return the run's folder that a target is; None of a scenario."""
    return Path(target) if isinstance(target, str | Path) and Path(target).is_dir() else None


def _update_files(folder: Path) -> list[Path]:
    """Return the updates that a run recorded, a file an entry; BadInput if there is none."""
    need_run(folder)
    files = names_in(folder, "updates-*.npz")
    if not files:
        raise BadInput(f"{folder}: no updates-*.npz: run its scenario with record_updates: true")
    return files


def scenario_of(folder: Path) -> Scenario:
    """Return the scenario of a run that recorded its updates; BadInput for another folder."""
    resolved = folder / "resolved.yaml"
    if not resolved.is_file():
        need_run(folder)
        raise BadInput(f"{folder}: no resolved.yaml: its run is not finished")
    _update_files(folder)
    return load(checked(resolved))


def _scenario_to_run(target: Any, overrides: Mapping[str, Any] | None) -> Scenario:
    """Load a scenario so that its run records updates."""
    return load(target, {**(overrides or {}), "record_updates": True})


def _run_into(out: str | Path | None, s: Scenario, begin: Stage) -> Path:
    """Run a scenario in a folder, or in a new one of `runs/`."""
    begin(f"running {s.name}")
    with run_folder(None if out is None else Path(out), s.name) as folder:
        run(s, None, folder)
    return folder


def views(folder: Path, study: Experiment) -> Iterator[tuple[View, Truth]]:
    """Yield the server's view of each entry of a run, and the truth to judge guesses by."""
    for name in study.scenario.protocols:
        file = folder / f"updates-{name}.npz"
        if file not in names_in(folder, "updates-*.npz"):
            raise BadInput(f"{folder}: no {file.name}: {name} has no aggregate")
        yield _Recorded(study, name, folder, read_updates(file)).both()


@dataclass(frozen=True, eq=False)
class _Recorded:
    """An entry of a run. held: the arrays of its `updates-NAME.npz`."""

    study: Experiment
    name: str
    folder: Path
    held: Mapping[str, NDArray[Any]]

    def both(self) -> tuple[View, Truth]:
        """Return the view and the truth; BadInput if the file is not of this scenario."""
        s, trainer, held = self.study.scenario, self.study.trainers[self.name], self.held
        N, t = s.population.users, len(held["rounds"])
        if held["updates"].shape[1] != trainer.d or int(held["users"]) != N:
            found = f"{int(held['users'])} users and {held['updates'].shape[1]} parameters"
            expected = f"expected {N} and {trainer.d} of resolved.yaml"
            raise BadInput(f"{self.folder}: updates-{self.name}.npz has {found}, {expected}")
        weights = np.zeros((t, N))
        weights[held["which"], held["members"]] = held["weights"]
        kind = s.protocols[self.name]
        view = View(
            entry=self.name,
            protocol=kind.protocol,
            plain=not kind.offline,
            users=N,
            rounds=held["rounds"],
            models=self.models(),
            weights=weights,
            totals=held["means"].astype(np.float64) * weights.sum(axis=1)[:, None],
            uploads=self.uploads,
            model=trainer.model,
            sgd=trainer.sgd,
            shape=trainer.split.shape,
            classes=trainer.split.classes,
        )
        return view, Truth(trainer.split, trainer.parts, self.first)

    def models(self) -> NDArray[np.float32]:
        """Return the global model before each aggregate, and after the last: the server's steps once more."""
        learning = self.study.scenario.learning
        rule, lr = learning.server, learning.server_lr
        weights = self.study.trainers[self.name].initial(self.study.streams.bytes("initial weights"))
        models, state = [weights[0]], rule.first(weights.shape[1])
        for mean in self.held["means"].astype(np.float64):
            state = rule.remember(state, mean[None]) if rule.rows else mean[None]
            weights = rule.apply(weights, state, lr)
            models.append(weights[0])
        return np.stack(models)

    def first(self, place: int) -> NDArray[np.float64]:
        """Return each user's w_i delta_i of the first round from a place on that it took part in, [N, d]."""
        later = np.flatnonzero(self.held["which"] >= place)
        users, earliest = np.unique(self.held["members"][later], return_index=True)
        rows = later[earliest]
        found = np.full((int(self.held["users"]), self.held["updates"].shape[1]), np.nan)
        found[users] = self.held["updates"][rows] * self.held["weights"][rows, None].astype(np.float64)
        return found

    def uploads(self, place: int) -> Seen:
        """Return what the server has of each user in a round: its upload read as an update [d], and the place
        of the model that it was made on."""
        rows = np.flatnonzero(self.held["which"] == place)
        updates = {int(self.held["members"][k]): self.held["updates"][k] for k in rows}
        places = {
            int(self.held["members"][k]): place - age for k, age in zip(rows, self.ages(place), strict=True)
        }
        kind = self.study.scenario.protocols[self.name]
        if kind.offline:
            weights = {int(self.held["members"][k]): float(self.held["weights"][k]) for k in rows}
            updates = self.masked(place, updates, weights)
        return {user: (delta, places[user]) for user, delta in updates.items()}

    def masked(
        self, place: int, updates: Mapping[int, NDArray[np.float32]], weights: Mapping[int, float]
    ) -> dict[int, NDArray[np.float32]]:
        """Return users' masked uploads of a round, read as if they were plain: elements of F_q as integers,
        over the quantisation's levels and the user's weight."""
        setup, q = self.setup, self.study.scenario.field.q
        index, d = int(self.held["rounds"][place]), self.held["updates"].shape[1]
        asynchronous = setup.protocol.asynchronous
        invited = list(range(int(self.held["users"]))) if asynchronous else list(self.rounds[index].invited)
        ops, zero = EagerOps(q), np.zeros(d, np.float32)
        scope = 0 if asynchronous else index
        clients = {u: setup.client(u, setup.params, ops, setup.entropy(u, scope)) for u in invited}
        server = setup.server(invited, setup.params, ops, setup.entropy(SERVER, scope))
        # A client rounds and multiplies by its samples; a factor by staleness comes from the server.
        samples, weighted = self.study.trainers[self.name].samples, setup.protocol.weighted
        counts = {user: samples(user) if weighted else 1 for user in invited}

        def update(user: int, *more: Any) -> Update:
            delta = updates.get(user, zero)[None]
            return Update(Handle(1, d, F32, np.ascontiguousarray(delta)), counts[user], *more)

        if asynchronous:
            sent = _sent_to_buffer(server, clients, sorted(updates), update)
        else:
            played = run_round(server, clients, {user: update(user) for user in invited})
            sent = [(sender, message) for sender, to, message in played.sent if to == SERVER]
        levels = setup.params.levels
        return {
            user: (signed(np.asarray(content)[0, :d], q) / (levels * counts[user])).astype(np.float32)
            for user, message in sent
            if user in updates and (content := _content(message)) is not None
        }

    def ages(self, place: int) -> list[int]:
        """Return the staleness of each update in an aggregate, in the file's order; 0 in rounds."""
        if not self.study.scenario.protocols[self.name].asynchronous:
            return [0] * int((self.held["which"] == place).sum())
        return [age for _, _, age in self.rounds[int(self.held["rounds"][place])].members]

    @cached_property
    def rounds(self) -> dict[int, metrics.Round]:
        traces = trace_reader.read(self.folder / "trace.jsonl", self.study.scenario.population.users)
        if self.name not in traces:
            raise BadInput(f"{self.folder}: trace.jsonl has no protocol {self.name}")
        return {r.index: r for r in metrics.rounds(traces[self.name])}

    @cached_property
    def setup(self) -> Any:
        """The protocol's parameters, machines and entropy, as the run has them."""
        return self.study.session(self.name, ConstantClock(), EagerOps(self.study.scenario.field.q)).setup


def _sent_to_buffer(
    server: Any, clients: Mapping[int, Any], users: list[int], update: Any
) -> list[tuple[int, Message]]:
    """Let users train and upload into a buffer without time; return what they sent to the server."""
    buffer = LoopbackBuffer(server, clients, lambda about, t: update(about.user, about, t), offline=True)
    sent: list[tuple[int, Message]] = []
    buffer.settle()
    for user in users:
        buffer.begin(user)
        buffer.settle()
        buffer.submit(user)
        sent += [(user, message) for message in buffer.links[user, SERVER]]
    return sent


def _content(message: Message) -> Any:
    """Return the vector of an upload; None of any other message."""
    if message.point != "upload":
        return None
    return max((handle for _, handle in handles(message)), key=lambda handle: handle.columns).content
