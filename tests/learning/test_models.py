import pytest
import torch
from torch import nn

from simfl.learning.models import MODELS, Model, Shape

DIGITS = (1, 8, 8)


@pytest.mark.parametrize(
    ("name", "shape", "parameters"),
    [
        ("logistic", DIGITS, 64 * 10 + 10),
        ("logistic", (1, 28, 28), 7850),
        ("cnn", DIGITS, (9 * 16 + 16) + (9 * 16 * 32 + 32) + (128 * 10 + 10)),
        ("cnn", (3, 4, 5), (27 * 16 + 16) + (9 * 16 * 32 + 32) + (32 * 10 + 10)),
    ],
)
def test_parameter_counts(name: str, shape: Shape, parameters: int) -> None:
    assert MODELS[name].name == name
    assert sum(p.numel() for p in MODELS[name].blank(shape, 10).parameters()) == parameters


@pytest.mark.parametrize(
    ("name", "shape", "macs"),
    [
        ("logistic", DIGITS, 64 * 10),
        ("cnn", DIGITS, 64 * 9 * 16 + 16 * 9 * 16 * 32 + 128 * 10),
        ("cnn", (3, 4, 5), 20 * 27 * 16 + 4 * 9 * 16 * 32 + 32 * 10),
    ],
)
def test_macs_by_hand(name: str, shape: Shape, macs: int) -> None:
    assert MODELS[name].macs(shape, 10) == macs


def test_macs_of_strides_groups_and_no_padding() -> None:
    def build(shape: Shape, classes: int) -> nn.Module:
        grouped = nn.Conv2d(shape[0], 8, (3, 1), stride=2, groups=2, bias=False)
        return nn.Sequential(grouped, nn.Flatten(), nn.Linear(8 * 3 * 4, classes))

    # 7 x 7 gives 3 x 4 positions of 8 channels, each over 4 / 2 channels and 3 x 1 taps.
    assert Model("grouped", build).macs((4, 7, 7), 5) == 3 * 4 * 8 * 2 * 3 + 96 * 5


def test_work_that_cannot_be_counted_is_an_error() -> None:
    model = Model(
        "odd", lambda shape, classes: nn.Sequential(nn.Flatten(), nn.PReLU(), nn.Linear(64, classes))
    )
    with pytest.raises(ValueError, match="multiply-adds of a layer PReLU"):
        model.macs(DIGITS, 10)


def test_buffers_are_refused() -> None:
    model = Model("norm", lambda shape, classes: nn.BatchNorm2d(shape[0]))
    with pytest.raises(ValueError, match="model norm: buffers are not aggregated: running_mean"):
        model.blank(DIGITS, 10)


def test_cnn_refuses_small_images() -> None:
    with pytest.raises(ValueError, match=r"h, w >= 4, not \[1, 8, 3\]"):
        MODELS["cnn"].blank((1, 8, 3), 10)


def test_blanks_hold_nothing_and_draw_nothing() -> None:
    before = torch.get_rng_state()
    blank = MODELS["cnn"].blank(DIGITS, 10)
    assert all(p.is_meta for p in blank.parameters())
    assert torch.equal(torch.get_rng_state(), before)
