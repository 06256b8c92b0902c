"""Layers of sequences: multiply-adds by torch's own counter, and training on tokens, whichever way."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from simfl.learning.data import Split
from simfl.learning.models import MODELS, Model
from simfl.learning.models.facts import facts
from simfl.learning.models.rules import blank
from simfl.learning.sgd import LocalSgd, WayName, choose_method
from simfl.learning.trainer import Trainer
from simfl.learning.workspace import slots
from tests.learning.models.made import made

T, LETTERS = 5, 11


class Reads(nn.Module):
    """Embeds tokens, applies layers, and has a linear head on the last output."""

    def __init__(self, layer: nn.Module, out: int, how: Callable[[nn.Module, Tensor], Tensor]) -> None:
        super().__init__()
        self.embedding, self.layer, self.how = nn.Embedding(LETTERS, 8), layer, how
        self.head = nn.Linear(out, LETTERS)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.how(self.layer, self.embedding(x)))
        return logits


def last(layer: nn.Module, x: Tensor) -> Tensor:
    out = layer(x)
    return (out[0] if isinstance(out, tuple) else out)[:, -1]


def stepped(layer: nn.Module, x: Tensor) -> Tensor:
    state: Any = None
    for k in range(T):
        state = layer(x[:, k], state)
    hidden: Tensor = state[0] if isinstance(state, tuple) else state
    return hidden


def attends(layer: nn.Module, x: Tensor) -> Tensor:
    out: Tensor = layer(x, x, x)[0][:, -1]
    return out


def crosses(layer: nn.Module, x: Tensor) -> Tensor:
    out: Tensor = layer(x, key=x[:, :3, :6], value=x[:, :3, :4], need_weights=False)[0].mean(1)
    return out


def time_first(layer: nn.Module, x: Tensor) -> Tensor:
    out: Tensor = layer(x.transpose(0, 1))[0][-1]
    return out


LAYERS: dict[str, tuple[Callable[[], nn.Module], int, Callable[[nn.Module, Tensor], Tensor]]] = {
    "lstm": (lambda: nn.LSTM(8, 6, batch_first=True), 6, last),
    "gru": (lambda: nn.GRU(8, 6, batch_first=True), 6, last),
    "rnn": (lambda: nn.RNN(8, 6, batch_first=True), 6, last),
    "deep": (lambda: nn.LSTM(8, 6, num_layers=3, bidirectional=True, batch_first=True), 12, last),
    "projected": (lambda: nn.LSTM(8, 6, num_layers=2, proj_size=4, batch_first=True), 4, last),
    "time first": (lambda: nn.GRU(8, 6, num_layers=2, bias=False), 6, time_first),
    "lstm cell": (lambda: nn.LSTMCell(8, 6), 6, stepped),
    "gru cell": (lambda: nn.GRUCell(8, 6), 6, stepped),
    "attention": (lambda: nn.MultiheadAttention(8, 2, batch_first=True), 8, attends),
    "cross attention": (lambda: nn.MultiheadAttention(8, 2, kdim=6, vdim=4, batch_first=True), 8, crosses),
    "transformer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0, batch_first=True), 8, last),
}
each_layer = pytest.mark.parametrize("name", LAYERS)


def model(name: str) -> Model:
    make, out, how = LAYERS[name]
    return made(lambda shape, classes: Reads(make(), out, how), name)


@pytest.mark.ci(only=["deep", "cell", "transformer"])
@each_layer
def test_macs_are_half_the_flops_of_torchs_own_counter(name: str) -> None:
    module = blank(model(name), (T,), LETTERS, tokens=True)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(torch.zeros(1, T, dtype=torch.long, device="meta"))
    norms = 2 * 2 * T * 8 if name == "transformer" else 0
    assert counter.get_total_flops() > 0
    assert facts(model(name), (T,), LETTERS, tokens=True).macs == counter.get_total_flops() // 2 + norms


def test_macs_of_leafs_model_by_hand() -> None:
    steps = 7 * 4 * 256 * ((8 + 256) + (256 + 256))
    assert facts(MODELS["char_lstm"](), (7,), 80, tokens=True).macs == steps + 256 * 80


def text(n: int = 20, seed: int = 3) -> Split:
    """Sequences whose last token decides: the next one is its successor."""
    x = np.random.default_rng(seed).integers(0, LETTERS, (n, T)).astype(np.int16)
    y = (x[:, -1].astype(np.int64) + 1) % LETTERS
    return Split(x, y, x, y, LETTERS).checked("text")


def update(name: str, way: WayName, epochs: int = 2) -> np.ndarray:
    parts = [np.arange(0, 9), np.arange(9, 20)]
    trainer = Trainer(text(), parts, model(name), LocalSgd(epochs, 4, 0.2), "cpu", way, np.float64)
    seeds = [bytes([k]) * 32 for k in (1, 2)]
    return trainer.train([trainer.initial(bytes(32))] * 2, [0, 1], seeds, [0, 0])


@pytest.mark.ci(but=["rnn"])
@each_layer
def test_side_by_side_gives_the_loops_updates(name: str) -> None:
    alone = update(name, "loop")
    assert np.linalg.norm(alone) > 1e-3
    np.testing.assert_allclose(update(name, "vectorised"), alone, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("name", ["lstm", "transformer"])
def test_a_step_is_that_of_torchs_sgd(name: str) -> None:
    split, sgd = text(4), LocalSgd(1, 4, 0.2)
    trainer = Trainer(split, [np.arange(4)], model(name), sgd, "cpu", "loop", np.float64)
    start = trainer.initial(bytes(32))
    make, out, how = LAYERS[name]
    module = Reads(make(), out, how).double()
    layout, named = slots(module), dict(module.named_parameters())
    with torch.no_grad():
        for slot in layout:
            named[slot.name].copy_(slot.view(torch.from_numpy(start[0])))
    optimiser = torch.optim.SGD(module.parameters(), lr=0.2)
    cross_entropy(module(torch.from_numpy(split.x_train).long()), torch.from_numpy(split.y_train)).backward()
    optimiser.step()
    after = np.concatenate([named[slot.name].detach().numpy().ravel() for slot in layout])
    found = trainer.train([start], [0], [bytes(32)], [0])[0]
    np.testing.assert_allclose(found, start[0] - after, atol=1e-9)


def test_starting_weights_are_spread_as_torchs() -> None:
    parts = [np.arange(20)]
    trainer = Trainer(text(), parts, MODELS["char_lstm"](), LocalSgd(1, 4, 0.2), "cpu")
    start = trainer.initial(bytes(32))[0]
    embedding, lstm = start[: 8 * LETTERS], start[8 * LETTERS :][: 4 * 256 * 8]
    assert 0.8 < embedding.std() < 1.2
    assert 0.9 / 16 < np.abs(lstm).max() <= 1 / 16


@pytest.mark.ci
def test_char_lstm_learns_the_next_token() -> None:
    spec = MODELS["char_lstm"](embedding=8, hidden=16, layers=1)  # type: ignore[call-arg]
    trainer = Trainer(text(200), [np.arange(200)], spec, LocalSgd(40, 10, 0.5), "cpu")
    start = trainer.initial(bytes(32))
    before = trainer.evaluate(start)[0, 0]
    (delta,) = trainer.train([start], [0], [bytes(32)], [0])
    after = trainer.evaluate(start - delta[None])[0, 0]
    assert before < 0.4
    assert after > 0.9


def test_models_of_numbers_refuse_tokens() -> None:
    with pytest.raises(ValueError, match=r"logistic takes numbers, and the samples are tokens: embed them"):
        facts(MODELS["logistic"](), (T,), LETTERS, tokens=True)
    with pytest.raises(ValueError, match=r"its forward fails for tokens \[5\]: TypeError: Linear got tokens"):
        facts(made(lambda shape, classes: nn.Linear(T, classes)), (T,), LETTERS, tokens=True)
    with pytest.raises(ValueError, match=r"char_lstm.* needs samples \[characters\], not \[1, 8, 8\]"):
        facts(MODELS["char_lstm"](), (1, 8, 8), LETTERS, tokens=True)


def test_recurrent_layers_that_draw_or_do_not_fit() -> None:
    drawn = partial(nn.GRU, 8, 6, 2, dropout=0.1, batch_first=True)
    drawing = made(lambda shape, classes: Reads(drawn(), 6, last), "gru")
    with pytest.raises(ValueError, match=r"layer 'layer', GRU, draws random numbers: only nn.Dropout may"):
        facts(drawing, (T,), LETTERS, tokens=True)
    wrong = made(lambda shape, classes: Reads(nn.GRU(7, 6, batch_first=True), 6, last))
    with pytest.raises(ValueError, match=r"its forward fails for tokens \[5\]: .* Expected 7, got 8"):
        facts(wrong, (T,), LETTERS, tokens=True)


def states(layer: nn.Module, x: Tensor) -> Tensor:
    """The last hidden states of every layer and direction, and the cells of an LSTM."""
    state = layer(x)[1]
    parts = [state] if isinstance(state, Tensor) else [*state]
    return torch.cat([part.transpose(0, 1).flatten(1) for part in parts], 1)


@pytest.mark.parametrize(("kind", "each"), [(nn.LSTM, 4 + 6), (nn.GRU, 6), (nn.RNN, 6)])
@pytest.mark.parametrize("batch_first", [True, False])
def test_last_states_have_their_shapes(kind: Any, each: int, batch_first: bool) -> None:
    more = {"proj_size": 4} if kind is nn.LSTM else {}

    def how(layer: nn.Module, x: Tensor) -> Tensor:
        return states(layer, x if batch_first else x.transpose(0, 1))

    layer = partial(kind, 8, 6, 2, bidirectional=True, batch_first=batch_first, **more)
    known = facts(made(lambda shape, classes: Reads(layer(), 4 * each, how)), (T,), LETTERS, tokens=True)
    assert known.d == sum(p.numel() for p in Reads(layer(), 4 * each, how).parameters())


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_recurrent_model_trains_one_client_after_the_other(device: str) -> None:
    assert facts(model("gru"), (T,), LETTERS, tokens=True).recurrent
    assert choose_method("auto", False, device, recurrent=True).name == "loop"


def test_negative_tokens_are_refused() -> None:
    split = text()
    wrong = Split(split.x_train - np.int16(1), split.y_train, split.x_test, split.y_test, LETTERS)
    with pytest.raises(ValueError, match="x_train: token -1, expected none below 0"):
        wrong.checked("data")
    mixed = Split(split.x_train, split.y_train, split.x_test.astype(np.float32), split.y_test, LETTERS)
    with pytest.raises(ValueError, match="x_test is float32, and x_train int16"):
        mixed.checked("data")
