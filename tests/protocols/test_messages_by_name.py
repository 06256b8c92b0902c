"""A protocol names its messages: by these names and directions they are read off a wire."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simfl.engine.setup import ModelDownload, Stop
from simfl.engine.transport import Transport
from simfl.protocols.buffered_server import Upload
from simfl.protocols.consistency import Consistent
from simfl.protocols.machine import SERVER
from simfl.protocols.registry import PROTOCOLS
from simfl.studies.verify import Subject

EXAMPLE = Path(__file__).parents[2] / "examples" / "dealt_pads.py"
ENGINES = (ModelDownload, Stop)
"""The messages of every run, whatever its protocol."""


@pytest.mark.parametrize("name", [*PROTOCOLS, f"{EXAMPLE}:DealtPads"])
def test_what_a_run_sends_is_named(name: str) -> None:
    signed = name in PROTOCOLS and issubclass(PROTOCOLS[name], Consistent)  # whose users then say most
    subject = Subject(name, {f"protocols.{name}.consistency": "signatures"} if signed else {})
    kind = subject.cohort.kind
    sent: dict[bool, set[Any]] = {True: set(), False: set()}
    for _, to, message in subject.run({}).sent:
        if not isinstance(message, ENGINES):
            sent[to == SERVER].add(type(message))
    assert sent == {True: set(kind.to_server), False: set(kind.to_users)}


@pytest.mark.parametrize("name", list(PROTOCOLS))
def test_no_two_messages_share_a_name(name: str) -> None:
    kind = PROTOCOLS[name]
    names = kind.messages()
    assert len(names) == len(kind.to_server) + len(kind.to_users) > 0
    assert all(message.kind == name for name, message in names.items())
    assert not names.keys() & {message.kind for message in ENGINES}


@pytest.fixture
def models(monkeypatch: pytest.MonkeyPatch) -> list[ModelDownload]:
    """The models that a session sends."""
    sent: list[ModelDownload] = []
    down = Transport.down

    def noting(self: Transport, job: Any, to: int, message: Any, step: int) -> None:
        sent.extend([message] if isinstance(message, ModelDownload) else [])
        down(self, job, to, message, step)

    monkeypatch.setattr(Transport, "down", noting)
    return sent


@pytest.mark.parametrize("name", ["fedbuff", "lightsecagg_async"])
def test_an_update_is_made_on_the_models_version(name: str, models: list[ModelDownload]) -> None:
    sent = [message for _, _, message in Subject(name, {}).run({"rounds": 4}).sent]
    uploads = {message.update: message.version for message in sent if isinstance(message, Upload)}
    assert uploads.items() <= {model.update: model.version for model in models}.items()
    assert len(set(uploads.values())) > 1


def test_a_rounds_model_says_its_version(models: list[ModelDownload]) -> None:
    Subject("fedavg", {}).run({})
    assert [model.version for model in models] == sorted([0, 1, 2] * (len(models) // 3))
