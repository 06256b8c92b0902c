"""The summary of a run, of each protocol and of each round: computed, written and read by these models.

Times are seconds of virtual time, bytes are of all users together. `results.columns` says what tables show.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import Field, JsonValue, ValidationError, model_validator

from simfl.errors import BadInput
from simfl.results.assumed import Assumed
from simfl.results.block import Block, ByPhase, Count, Extended, Seconds, Share
from simfl.results.by_class import ClassSummary
from simfl.results.drift import Drift
from simfl.results.energy import EnergySummary
from simfl.results.metrics import Path as CriticalPath
from simfl.results.metrics import Round
from simfl.results.reasons import reasons
from simfl.results.targets import Target
from simfl.results.text import first_problem, shown
from simfl.results.trace import PHASES
from simfl.virtual_time import NS

SCHEMA: Final = 2


@dataclass(frozen=True)
class Measurement:
    """Findings from the content of a round, None if not asked for. clipped: coordinates held back before
    rounding. updates_clipped: updates changed by the scenario's clip. speed_ns: of a measured run, the time
    that a fixed kernel took after the round, where it was timed. differ: coordinates in which the aggregate
    is not the plain sum."""

    aggregate_exact: bool | None = None
    wrapped: int | None = None
    clipped: int | None = None
    accuracy: float | None = None
    loss: float | None = None
    dropout_rate: float | None = None
    updates_clipped: int | None = None
    speed_ns: int | None = None
    differ: int = 0


def mean(values: Iterable[float]) -> float | None:
    """Return the mean of all values, None of none."""
    listed = list(values)
    return sum(listed) / len(listed) if listed else None


Spans = ByPhase[Seconds]
MeanSpans = ByPhase[Seconds | None]


class ByKind(Block):
    """Seconds of a critical path, by what was waited for."""

    compute: Seconds
    network: Seconds
    wait: Seconds


class RoundSummary(Extended):
    """A round, or an aggregation of an asynchronous run. None: no content, or not asked for.

    partial: updates in the aggregate whose training was cut; steps_share: the mean share of the minibatches
    done, over all updates in it.
    """

    index: Count
    status: Literal["completed", "aborted"]
    reason: str | None
    start_s: Seconds
    end_s: Seconds
    selected: Count
    survivors: Count
    dropped: ByPhase[Count]
    dropout_rate: Share | None
    span_s: Spans
    critical_s: Spans
    critical_kinds_s: ByKind
    aggregate_exact: bool | None
    differ: Count = 0
    wrapped: Count | None
    clipped: Count | None
    updates_clipped: Count | None
    surplus: Count = 0
    bytes_up: Count
    bytes_down: Count
    ignored: dict[str, Count]
    discarded_stale: Count
    refused: dict[str, Count]
    reliable: bool | None
    private: bool | None
    partial: Count = 0
    steps_share: Share = 1.0
    energy: EnergySummary | None = None
    accuracy: Share | None
    loss: float | None

    @classmethod
    def of(cls, r: Round, m: Measurement) -> Self:
        phases, kinds = Counter[str](), Counter[str]()
        for (phase, _, kind), ns in r.critical.items():
            phases[phase] += ns
            kinds[kind] += ns
        same = ("index", "reason", "selected", "bytes_up", "bytes_down", "reliable", "private")
        return cls(
            status="completed" if r.reason is None else "aborted",
            start_s=r.start / NS,
            end_s=r.end / NS,
            survivors=len(r.members),
            dropped=ByPhase[Count].of(lambda phase: r.dropped[phase]),
            span_s=Spans.of(lambda phase: r.span[phase] / NS),
            critical_s=Spans.of(lambda phase: phases[phase] / NS),
            critical_kinds_s=ByKind(**{kind: kinds[kind] / NS for kind in ByKind.model_fields}),
            ignored=dict(r.ignored),
            discarded_stale=len(r.stale),
            refused=dict(r.refused),
            energy=EnergySummary.of(r.energy),
            partial=len(r.partial),
            steps_share=r.steps_share,
            surplus=len(r.surplus),
            **{name: getattr(r, name) for name in same},
            **vars(m),
        )

    @property
    def completed(self) -> bool:
        return self.status == "completed"

    @property
    def total_s(self) -> float:
        return self.end_s - self.start_s

    @property
    def lost(self) -> int:
        """Users lost or given up, in whichever phase."""
        return sum(self.dropped[phase] for phase in PHASES)


class Means(Block):
    """Means over the completed rounds (span_s, total_s), and the run's time per aggregate: in all, of it in
    failed and skipped rounds, and by phase of the run's critical path, which adds up to it. None without any.
    """

    span_s: MeanSpans
    critical_s: MeanSpans
    total_s: Seconds | None
    per_aggregate_s: Seconds | None = None
    failed_s: Seconds | None = None


class ParticipationSummary(Block):
    """T, F and C after each round, and the size of the selection's family (`folder.result.taking_part`)."""

    family: Annotated[int, Field(ge=1)] | None
    T_weak: list[Annotated[list[Count], Field(min_length=2, max_length=2)] | None]
    T_strong: list[Count | None]
    F: list[Share]
    C: list[Annotated[float, Field(ge=0, le=1e15)]]


class ProtocolSummary(Extended):
    """An entry of a scenario's protocols. staleness: updates by how many versions late they came; None unless
    the run is asynchronous, and so the file's mark of its mode."""

    rounds: list[RoundSummary]
    mean: Means
    final_accuracy: Share | None
    staleness: dict[Annotated[str, Field(pattern=r"^[0-9]{1,9}$")], Count] | None
    selection: dict[str, JsonValue]
    training: str | None
    participation: ParticipationSummary | None
    targets: dict[str, Target] | None = None
    classes: dict[str, ClassSummary] | None = None
    energy: EnergySummary | None = None
    kept: ClassVar = ("targets",)

    @classmethod
    def of(
        cls,
        rounds: Sequence[Round],
        measured: Sequence[Measurement],
        buffered: bool,
        path: CriticalPath,
        **facts: Any,
    ) -> Self:
        """Return the summary of finished rounds. path: their `run_path`. facts: selection, training and
        participation."""
        entries = [RoundSummary.of(r, m) for r, m in zip(rounds, measured, strict=True)]
        completed = [r for r in entries if r.completed]
        phases = Counter[str]()
        for (phase, _, _), ns in path.items():
            phases[phase] += ns

        def per_aggregate(seconds: float) -> float | None:
            return seconds / len(completed) if completed else None

        late = Counter(tau for r in rounds for _, _, tau in r.members)
        return cls(
            rounds=entries,
            mean=Means(
                span_s=MeanSpans.of(lambda phase: mean(r.span_s[phase] for r in completed)),
                critical_s=MeanSpans.of(lambda phase: per_aggregate(phases[phase] / NS)),
                total_s=mean(r.total_s for r in completed),
                per_aggregate_s=per_aggregate(sum(r.total_s for r in entries)),
                failed_s=per_aggregate(sum(r.total_s for r in entries if not r.completed)),
            ),
            final_accuracy=next((r.accuracy for r in reversed(entries) if r.accuracy is not None), None),
            staleness={str(tau): late[tau] for tau in sorted(late)} if buffered else None,
            energy=EnergySummary.of(sum((r.energy for r in rounds), Counter())),
            **facts,
        )

    @property
    def buffered(self) -> bool:
        return self.staleness is not None

    @property
    def mean_staleness(self) -> float | None:
        """The mean over all updates; None without any."""
        late = self.staleness or {}
        updates = sum(late.values())
        return sum(int(tau) * count for tau, count in late.items()) / updates if updates else None

    @property
    def completed(self) -> list[RoundSummary]:
        return [r for r in self.rounds if r.completed]

    @property
    def cycles(self) -> list[list[RoundSummary]]:
        """The rounds up to each aggregate, from the one before it; what follows the last is of its cycle."""
        cycles: list[list[RoundSummary]] = []
        open_: list[RoundSummary] = []
        for r in self.rounds:
            open_.append(r)
            if r.completed:
                cycles.append(open_)
                open_ = []
        if cycles:
            cycles[-1] += open_
        return cycles

    @property
    def failures(self) -> list[tuple[str, int]]:
        """The `reasons` of failed and skipped rounds."""
        return reasons(r.reason for r in self.rounds)

    @property
    def partial(self) -> bool:
        """True where some training was cut."""
        return any(r.partial for r in self.rounds)

    @property
    def chosen(self) -> ParticipationSummary | None:
        return None if self.selection.get("kind") == "all" else self.participation

    @property
    def over_selected(self) -> bool:
        """True where more users are chosen than uploads are wanted."""
        return self.selection.get("over") is not None

    @property
    def accuracy_target(self) -> Target | None:
        return (self.targets or {}).get("accuracy")

    @property
    def loss_target(self) -> Target | None:
        return (self.targets or {}).get("loss")

    def at(self, rate: float | None) -> Self:
        """Return the part of the rounds at a drop-out rate; its means stay those of all."""
        return self.model_copy(update={"rounds": [r for r in self.rounds if r.dropout_rate == rate]})

    @model_validator(mode="after")
    def _after_each_round(self) -> Self:
        rounds = len(self.rounds)
        for name in ("T_weak", "T_strong", "F", "C") if self.participation is not None else ():
            if len(getattr(self.participation, name)) != rounds or not rounds:
                raise ValueError(f"participation.{name} must have an entry for each of {rounds} rounds")
        return self


class Summary(Block):
    """The whole file. `interrupted`: rounds are missing because the run was stopped."""

    schema_: Literal[2] = Field(alias="schema")
    scenario: str
    seed: Annotated[int, Field(ge=0, lt=2**63)]
    clock: Literal["measured", "modelled", "recorded"]
    payload: Literal["real", "shadow"]
    interrupted: bool
    versions: dict[str, str]
    protocols: dict[str, ProtocolSummary]
    assumed: Assumed | None = None
    timed_by: str | None = None  # of measured durations: the devices, and how each was timed
    drift: Drift | None = None  # of the machine's speed during a measured run

    @property
    def same_rounds(self) -> bool:
        """True where all protocols completed the same rounds: means over these compare like with like."""
        return len({tuple(r.index for r in p.completed) for p in self.protocols.values()}) <= 1

    def dump(self) -> dict[str, Any]:
        return self.model_dump(by_alias=True)


def read(path: Path) -> Summary:
    """Return the content of a `summary.json`; BadInput names the key, the value and what is expected."""
    try:
        return Summary.model_validate_json(path.read_bytes())
    except OSError as error:
        raise BadInput(f"{path}: cannot be read ({error})") from None
    except ValidationError as errors:
        first, message = errors.errors()[0], first_problem(errors)
        if first["loc"] == ("schema",):
            found = shown(None if first["type"] == "missing" else first["input"])
            message = f"schema {found}; reports are made from schema {SCHEMA}: run it again"
        elif first["type"] == "json_invalid":
            message = f"cannot be read ({message})"
        raise BadInput(f"{path}: {message}") from None
