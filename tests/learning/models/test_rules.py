"""The content of a module: replaced where possible, otherwise refused by name."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from simfl.learning.models.facts import facts
from simfl.learning.models.rules import BatchNorm, Dropout, blank
from tests.learning.models.made import made

SHAPE = (3, 8, 8)


def between(*layers: nn.Module, classes: int = 4) -> nn.Module:
    """Of the layers between a convolution and a linear layer."""

    def build(shape: tuple[int, ...], classes: int) -> nn.Module:
        head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, classes))
        return nn.Sequential(nn.Conv2d(3, 6, 3), *layers, head)

    return blank(made(build), SHAPE, classes)


@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm_loses_its_statistics(affine: bool) -> None:
    layer = between(nn.BatchNorm2d(6, eps=0.5, momentum=0.3, affine=affine)).get_submodule("1")
    assert isinstance(layer, BatchNorm)
    assert (layer.eps, len(list(layer.parameters()))) == (0.5, 2 if affine else 0)
    assert all(p.is_meta for p in layer.parameters())


def test_dropout_becomes_one_that_draws_nothing() -> None:
    layer = between(nn.Dropout(0.4)).get_submodule("1")
    assert isinstance(layer, Dropout)
    assert layer.p == 0.4


def test_a_layer_in_two_places_stays_one() -> None:
    shared = nn.BatchNorm2d(6)
    module = between(shared, nn.Sequential(nn.ReLU(), shared))
    assert module.get_submodule("1") is module.get_submodule("2.1")
    assert isinstance(module.get_submodule("1"), BatchNorm)


def test_a_module_that_is_itself_a_batch_norm() -> None:
    module = blank(made(lambda shape, classes: nn.BatchNorm1d(5), "norm"), (5,), 5)
    assert isinstance(module, BatchNorm)


def test_lazy_layers_take_their_shapes() -> None:
    def build(shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Sequential(nn.LazyConv2d(6, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(classes))

    assert facts(made(build), SHAPE, 4).d == (27 * 6 + 6) + 12 + (216 * 4 + 4)
    assert isinstance(blank(made(build), SHAPE, 4).get_submodule("1"), BatchNorm)


@pytest.mark.parametrize(
    "kind",
    [
        nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout, nn.RReLU,
        type("Mine", (nn.Dropout,), {}),
    ],
)  # fmt: skip
def test_other_random_layers_are_refused(kind: Callable[[], nn.Module]) -> None:
    layer = kind()
    named = f"^model mine: layer '1.0', {type(layer).__name__}, draws random numbers: only nn.Dropout may$"
    with pytest.raises(ValueError, match=named):
        between(nn.Sequential(layer))


class Of(nn.Module):
    """A layer by its function."""

    def __init__(self, function: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> object:
        return self.function(x)


@pytest.mark.parametrize(
    "function",
    [lambda x: F.dropout(x, 0.5), lambda x: x + torch.randn_like(x), lambda x: x * torch.rand(6, 1, 1)],
)
def test_random_functions_are_refused(function: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(
        ValueError, match=r"^model mine: .*it draws random numbers \(aten\..*only nn.Dropout may"
    ):
        between(Of(function))


def test_attention_and_recurrence_pass_without_their_own_dropout() -> None:
    class Attention(nn.Module):
        def __init__(self, p: float) -> None:
            super().__init__()
            self.inner, self.head = nn.MultiheadAttention(8, 2, dropout=p, batch_first=True), nn.Linear(8, 4)

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.head(self.inner(x, x, x)[0].mean(1))
            return logits

    assert facts(made(lambda shape, classes: Attention(0)), (5, 8), 4).d > 0
    with pytest.raises(ValueError, match="it draws random numbers"):
        blank(made(lambda shape, classes: Attention(0.1), "attention"), (5, 8), 4)


def test_state_is_refused() -> None:
    odd = type("Odd", (nn.BatchNorm2d,), {})
    with pytest.raises(ValueError, match="layer '1', Odd, is a user-defined batch norm"):
        between(odd(6))
    counter = nn.ReLU()
    counter.register_buffer("calls", torch.zeros(1), persistent=False)
    with pytest.raises(ValueError, match=r"^model mine: buffers are not aggregated: 1\.0\.calls$"):
        between(nn.Sequential(counter))
    constant = nn.ReLU()
    constant.scale = torch.ones(1)
    with pytest.raises(ValueError, match=r"tensors that are not parameters have no content here: 1\.scale$"):
        between(constant)


def test_running_statistics_of_other_norms_are_buffers() -> None:
    between(nn.InstanceNorm2d(6))
    with pytest.raises(ValueError, match=r"buffers are not aggregated: 1\.running_mean, 1\.running_var"):
        between(nn.InstanceNorm2d(6, track_running_stats=True))


def test_tied_and_idle_parameters_are_refused() -> None:
    def tied(shape: tuple[int, ...], classes: int) -> nn.Module:
        one, other = nn.Linear(4, 4), nn.Linear(4, 4)
        other.weight = one.weight
        return nn.Sequential(one, other)

    with pytest.raises(
        ValueError, match=r"parameters that several layers share are not supported: 0\.weight$"
    ):
        blank(made(tied, "tied"), (4,), 4)
    with pytest.raises(ValueError, match=r"no gradient reaches the parameters 1\.0\.weight, 1\.0\.bias$"):
        between(_Idle(nn.Linear(2, 2)))
    with pytest.raises(ValueError, match="there are no parameters to train"):
        blank(made(lambda shape, classes: nn.Flatten(), "none"), (4,), 4)
    with pytest.raises(ValueError, match=r"no gradient reaches the parameters 0\.weight, 0\.bias$"):
        between(Of(lambda x: x.detach()))


class _Idle(nn.Sequential):
    def forward(self, x: Tensor) -> Tensor:
        return x


def test_logits_of_another_shape_are_refused() -> None:
    def flat(shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(0, 1), nn.Linear(8, classes))

    with pytest.raises(
        ValueError, match=r"^model flat: for 2 samples it gives \[8, 4\], not logits \[2, 4\]$"
    ):
        blank(made(flat, "flat"), (4, 8), 4)
    with pytest.raises(ValueError, match=r"it gives tuple, not logits"):
        blank_of_function(lambda x: (x,))


def blank_of_function(function: Callable[[Tensor], object]) -> nn.Module:
    def build(shape: tuple[int, ...], classes: int) -> nn.Module:
        return nn.Sequential(nn.Linear(4, 4), Of(function))

    return blank(made(build, "function"), (4,), 4)


def test_a_forward_that_fails() -> None:
    with pytest.raises(
        ValueError, match=r"^model mine: its forward fails for samples \[3, 8, 8\]: RuntimeError: "
    ):
        between(nn.Linear(5, 5))
    # The trainer holds images channels last, in which this cannot be a view.
    with pytest.raises(ValueError, match=r"its forward fails .*\.reshape"):
        between(Of(lambda x: x.view(2, -1)))
    with pytest.raises(ValueError, match="its forward fails for samples"):
        blank_of_function(lambda x: x if x.sum().item() else -x)


def test_a_dry_run_does_not_import_the_compiler() -> None:
    """It takes two CPU seconds, and each command that reads a model would take them."""
    code = (
        "import sys, torch\n"
        "from simfl.learning.models.rules import watching\n"
        "seen = []\n"
        "with watching(lambda op, *_: seen.append(op)):\n"
        "    torch.zeros(2) + 1\n"
        "print(len(seen), 'torch._dynamo' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "2 False\n"
