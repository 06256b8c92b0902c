"""The messages of a run: those of its machines' tables, and their versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simfl.engine.server_side import ServerSide
from simfl.engine.setup import ModelDownload
from simfl.live.wire import messages
from simfl.protocols.buffered_server import Upload
from simfl.protocols.consistency import Consistent
from simfl.protocols.machine import SERVER, Message
from simfl.protocols.registry import PROTOCOLS
from simfl.studies.verify import Subject

EXAMPLE = Path(__file__).parents[2] / "examples" / "dealt_pads.py"


@pytest.mark.ci(but=["lightsecagg"])
@pytest.mark.parametrize("name", [*(name for name in PROTOCOLS if name != "prio3"), f"{EXAMPLE}:DealtPads"])
def test_sent_messages_are_in_the_tables(name: str) -> None:
    """A live run takes from a wire what its machines' tables have, each kind under a name of its own."""
    signed = name in PROTOCOLS and issubclass(PROTOCOLS[name], Consistent)  # whose users then say most
    subject = Subject(name, {f"protocols.{name}.consistency": "signatures"} if signed else {})
    cohort, sent = subject.cohort, subject.run({}).sent
    up, down = messages(cohort.kind, cohort.scenario.params(cohort.protocol, 4))
    assert {type(message) for _, to, message in sent if to == SERVER} <= set(up)
    assert {type(message) for _, to, message in sent if to != SERVER} <= set(down)
    kinds = [message.kind for message in {*up, *down}]
    assert len(set(kinds)) == len(kinds)


def test_a_kind_is_relayed_in_all_protocols_or_in_none() -> None:
    """Reports tell relayed shares by the kind of a message."""

    def subclasses(kind: type[Message]) -> set[type[Message]]:
        return {kind, *(each for child in kind.__subclasses__() for each in subclasses(child))}

    ours = {m for m in subclasses(Message) if m.__module__.startswith("simfl.") and "kind" in vars(m)}
    relayed = {m.kind for m in ours if m.relayed}
    assert "shares" in relayed
    assert not relayed & {m.kind for m in ours if not m.relayed}


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> list[ModelDownload]:
    """The models that a session sends."""
    sent: list[ModelDownload] = []
    send = ServerSide._send

    def noting(self: ServerSide, index: int, to: int, message: Any, step: int) -> None:
        sent.extend([message] if isinstance(message, ModelDownload) else [])
        send(self, index, to, message, step)

    monkeypatch.setattr(ServerSide, "_send", noting)
    return sent


@pytest.mark.parametrize("name", ["fedbuff", "lightsecagg_async"])
def test_an_update_is_made_on_the_models_version(name: str, models: list[ModelDownload]) -> None:
    sent = [message for _, _, message in Subject(name, {}).run({"rounds": 4}).sent]
    uploads = {message.update: message.version for message in sent if isinstance(message, Upload)}
    assert uploads.items() <= {model.update: model.version for model in models}.items()
    assert len(set(uploads.values())) > 1


def test_model_of_a_round_states_its_version(models: list[ModelDownload]) -> None:
    Subject("fedavg", {}).run({})
    assert [model.version for model in models] == sorted([0, 1, 2] * (len(models) // 3))
