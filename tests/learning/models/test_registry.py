"""Each of our models: its exact counts, its layers, and that it trains."""

from __future__ import annotations

import re
from functools import cache

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy
from torch.utils.flop_counter import FlopCounterMode

from simfl.learning.models import MODELS, Shape
from simfl.learning.models.facts import facts
from simfl.learning.models.multiply_adds import macs
from simfl.learning.models.rules import BatchNorm, Dropout, blank, dropouts
from tests.learning.models.made import filled, normal

DIGITS, MNIST, CIFAR, IMAGENET = (1, 8, 8), (1, 28, 28), (3, 32, 32), (3, 224, 224)
CROP = (3, 24, 24)
SMALL = {
    "logistic": DIGITS,
    "softmax": (1, 11, 9),
    "cnn": DIGITS,
    "mcmahan_cnn": (1, 12, 9),
    "femnist_cnn": (1, 12, 9),
    "lenet5": (2, 13, 15),
    "xie_cnn": (1, 8, 6),
    "vgg11": CIFAR,
    "mobilenet_v3": (1, 17, 17),
    "efficientnet_b0": (1, 17, 17),
    "resnet18_gn": (1, 17, 17),
}


def count(name: str, shape: Shape, classes: int) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in MODELS[name]().build(shape, classes).parameters())


BUILT = [name for name in MODELS if name != "size"]
OF_NUMBERS = [name for name in BUILT if name != "char_lstm"]


@pytest.mark.parametrize("name", BUILT)
def test_the_list_has_the_exact_count(name: str) -> None:
    said = re.search(r"([\dx]+) in (\d+) classes: ([\d,]+) parameters", dict(MODELS.listed())[name])
    assert said is not None
    shape = tuple(map(int, said[1].split("x")))
    assert count(name, shape, int(said[2])) == int(said[3].replace(",", ""))


@pytest.mark.parametrize(
    ("name", "shape", "classes", "parameters"),
    [
        ("logistic", DIGITS, 10, 650),
        ("logistic", MNIST, 10, 7_850),
        ("softmax", (1, 112, 92), 40, 412_200),
        ("cnn", DIGITS, 10, (9 * 16 + 16) + (9 * 16 * 32 + 32) + (128 * 10 + 10)),
        ("cnn", (3, 4, 5), 10, (27 * 16 + 16) + (9 * 16 * 32 + 32) + (32 * 10 + 10)),
        ("mcmahan_cnn", MNIST, 10, 1_663_370),
        ("femnist_cnn", MNIST, 62, 1_206_590),
        ("femnist_cnn", MNIST, 10, 1_199_882),  # what FedML's docstring says
        ("lenet5", MNIST, 10, 61_706),
        ("lenet5", CIFAR, 10, 62_006),
        ("xie_cnn", CIFAR, 10, 260_160 + 768 + (128 * 8 * 8 + 1) * 512 + 5_130),
        ("vgg11", CIFAR, 100, 9_271_780),
        ("vgg11", (3, 64, 40), 100, 9_271_780),
        ("mobilenet_v3", IMAGENET, 1000, 3_111_462),
        ("mobilenet_v3", CIFAR, 10, 3_111_462 - 990 * 1281),
        ("efficientnet_b0", IMAGENET, 1000, 5_288_548),
        ("efficientnet_b0", CIFAR, 203, 5_288_548 - 797 * 1281),
        ("resnet18_gn", IMAGENET, 1000, 11_689_512),  # as with batch norm: a scale and a shift a channel
        ("resnet18_gn", CROP, 100, 11_689_512 - 900 * 513),
        ("char_lstm", (80,), 80, 80 * 8 + 4 * 256 * (8 + 256 + 2) + 4 * 256 * (512 + 2) + 257 * 80),
        ("char_lstm", (80,), 90, 820_522 + 2 * 4 * 256),  # Reddi et al. 2021, one bias a layer; torch has two
    ],
)
def test_parameter_counts(name: str, shape: Shape, classes: int, parameters: int) -> None:
    assert count(name, shape, classes) == parameters


@cache
def module_of(name: str, shape: Shape, classes: int) -> nn.Module:
    """A blank that is looked at and not changed."""
    return blank(MODELS[name](), shape, classes)


def layers(name: str, shape: Shape, classes: int) -> list[int]:
    """Parameters of the linear layers and convolutions, in order."""
    found = [m for m in module_of(name, shape, classes).modules() if isinstance(m, nn.Linear | nn.Conv2d)]
    return [sum(p.numel() for p in layer.parameters()) for layer in found]


def drops(name: str, shape: Shape, classes: int) -> list[tuple[float, Shape]]:
    return [(layer.p, inner) for layer, inner in dropouts(module_of(name, shape, classes), shape)]


def test_layers_of_the_femnist_cnn() -> None:
    assert layers("femnist_cnn", MNIST, 62) == [320, 18_496, 1_179_776, 7_998]
    assert drops("femnist_cnn", MNIST, 62) == [(0.25, (64 * 12 * 12,)), (0.5, (128,))]


def test_layers_of_the_mcmahan_cnn() -> None:
    assert layers("mcmahan_cnn", MNIST, 10) == [832, 51_264, 1_606_144, 5_130]


def test_layers_of_the_cnn_of_xie() -> None:
    convolutions = [27 * 64 + 64, 9 * 64 * 64 + 64, 9 * 64 * 128 + 128, 9 * 128 * 128 + 128]
    assert layers("xie_cnn", CIFAR, 10) == [*convolutions, 8192 * 512 + 512, 512 * 10 + 10]
    norms = [m.weight for m in module_of("xie_cnn", CIFAR, 10).modules() if isinstance(m, BatchNorm)]
    assert [len(weight) for weight in norms if weight is not None] == [64, 64, 128, 128]
    assert drops("xie_cnn", CIFAR, 10) == [(0.25, (64, 16, 16)), (0.25, (128, 8, 8)), (0.25, (512,))]


def test_layers_of_vgg() -> None:
    *convolutions, head = layers("vgg11", CIFAR, 100)
    assert (len(convolutions), sum(convolutions), head) == (8, 9_220_480, 512 * 100 + 100)


@pytest.mark.ci
def test_layers_of_mobilenet() -> None:
    counts = layers("mobilenet_v3", CIFAR, 10)
    # Stem with bias; the first row expands without, the rest of it has them.
    assert counts[:6] == [27 * 16 + 16, 16 * 16, 9 * 16 + 16, 16 * 4 + 4, 4 * 16 + 16, 16 * 16 + 16]
    assert counts[-5:] == [
        96 * 576 + 576,
        576 * 144 + 144,
        144 * 576 + 576,
        576 * 1280 + 1280,
        1280 * 10 + 10,
    ]
    assert len(counts) == 1 + 11 * 3 + 9 * 2 + 1 + 2 + 2
    strides = [layer.stride for layer in convolutions("mobilenet_v3") if layer.groups > 1]
    assert strides == [(s, s) for s in (2, 2, 1, 2, 1, 1, 1, 1, 2, 1, 1)]


def convolutions(name: str) -> list[nn.Conv2d]:
    return [layer for layer in module_of(name, CIFAR, 10).modules() if isinstance(layer, nn.Conv2d)]


@pytest.mark.ci
def test_blocks_of_efficientnet() -> None:
    depthwise = [layer for layer in convolutions("efficientnet_b0") if layer.groups > 1]
    # Tan and Le, Table 1: each stage's first block works at its stride on six times the channels before it.
    assert [(d.in_channels, d.kernel_size[0], d.stride[0]) for d in depthwise] == [
        (32, 3, 1),
        (96, 3, 2), (144, 3, 1),
        (144, 5, 2), (240, 5, 1),
        (240, 3, 2), (480, 3, 1), (480, 3, 1),
        (480, 5, 1), (672, 5, 1), (672, 5, 1),
        (672, 5, 2), (1152, 5, 1), (1152, 5, 1), (1152, 5, 1),
        (1152, 3, 1),
    ]  # fmt: skip
    found = drops("efficientnet_b0", CIFAR, 10)
    blocks = [k for k in range(16) if k not in (0, 1, 3, 5, 8, 11, 15)]
    assert [round(p, 9) for p, _ in found] == [round(0.2 * k / 16, 9) for k in blocks] + [0.2]
    assert [shape for _, shape in found] == [(1, 1, 1)] * len(blocks) + [(1280,)]


@pytest.mark.ci
def test_blocks_of_resnet() -> None:
    # By hand: the stem, the first block of each stage (with its projection from the second on), the second.
    stem, head = 3 * 49 * 64 + 2 * 64, 512 * 100 + 100
    firsts = [9 * a * b + 9 * b * b + 4 * b for a, b in ((64, 64), (64, 128), (128, 256), (256, 512))]
    projections = [a * b + 2 * b for a, b in ((64, 128), (128, 256), (256, 512))]
    seconds = [2 * 9 * b * b + 4 * b for b in (64, 128, 256, 512)]
    assert count("resnet18_gn", CROP, 100) == stem + sum(firsts + projections + seconds) + head == 11_227_812
    module = module_of("resnet18_gn", CROP, 100)
    norms = [layer for layer in module.modules() if isinstance(layer, nn.GroupNorm)]
    assert len(norms) == 1 + 8 * 2 + 3
    assert {norm.num_groups for norm in norms} == {2}


def reference_resnet(weights: dict[str, torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    """ResNet-18 written out, in functions, with the names of our module's parameters."""

    def normed(x: torch.Tensor, conv: str, norm: str, stride: int) -> torch.Tensor:
        w = weights[f"{conv}.weight"]
        x = F.conv2d(x, w, stride=stride, padding=w.shape[-1] // 2)
        n, c, h, wide = x.shape
        grouped = x.reshape(n, 2, -1)
        centred = grouped - grouped.mean(2, keepdim=True)
        scaled = (centred / (centred.square().mean(2, keepdim=True) + 1e-5).sqrt()).reshape(n, c, h, wide)
        return scaled * weights[f"{norm}.weight"].view(-1, 1, 1) + weights[f"{norm}.bias"].view(-1, 1, 1)

    x = F.max_pool2d(normed(x, "0", "1", 2).relu(), 3, 2, 1)
    for block, stride in enumerate((1, 1, 2, 1, 2, 1, 2, 1), start=4):
        inner = normed(x, f"{block}.body.0", f"{block}.body.1", stride).relu()
        if stride == 2:
            x = normed(x, f"{block}.shortcut.0", f"{block}.shortcut.1", 2)
        x = (x + normed(inner, f"{block}.body.3", f"{block}.body.4", 1)).relu()
    return x.mean((2, 3)) @ weights["14.weight"].T + weights["14.bias"]


@pytest.mark.ci
def test_resnet_is_the_reference_written_out() -> None:
    module = filled("resnet18_gn", CROP, 5, torch.float64)
    x = normal(3, *CROP, dtype=torch.float64)
    expected = reference_resnet(dict(module.named_parameters()), x)
    assert expected.std() > 0
    torch.testing.assert_close(module(x), expected)


SLOW = pytest.mark.slow


@pytest.mark.ci(but=["[cnn]"])
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[SLOW] if name == "efficientnet_b0" else []) for name in OF_NUMBERS]
)
def test_macs_are_half_the_flops_of_torchs_own_counter(name: str) -> None:
    shape, norms = SMALL[name], 0
    module = blank(MODELS[name](), shape, 10)

    def note(_: nn.Module, __: object, output: torch.Tensor) -> None:
        nonlocal norms
        norms += 2 * output.numel()

    for layer in module.modules():
        if isinstance(layer, BatchNorm | nn.GroupNorm):
            layer.register_forward_hook(note)
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(torch.empty(1, *shape, device="meta"))
    assert facts(MODELS[name](), shape, 10).macs == counter.get_total_flops() // 2 + norms
    assert (norms > 0) == (name in ("xie_cnn", "mobilenet_v3", "efficientnet_b0", "resnet18_gn"))


@pytest.mark.ci(but=["cnn"])
@pytest.mark.parametrize("name", OF_NUMBERS)
def test_each_trains_on_a_tiny_batch(name: str) -> None:
    module = filled(name, SMALL[name], 7)
    logits = module(normal(2, *SMALL[name]))
    assert logits.shape == (2, 7)
    cross_entropy(logits, torch.tensor([3, 5])).backward()
    for path, parameter in module.named_parameters():
        assert parameter.grad is not None, path
        assert parameter.grad.isfinite().all(), path
    assert all(p.grad is not None and p.grad.any() for p in list(module.parameters())[-2:])


@pytest.mark.parametrize(
    ("name", "shape"), [("femnist_cnn", (1, 12, 9)), pytest.param("mobilenet_v3", (3, 33, 33), marks=SLOW)]
)
def test_gradients_of_clients_side_by_side(name: str, shape: Shape) -> None:
    clients, samples = 2, 3
    module = filled(name, shape, 4, torch.float64)
    drops = dropouts(module, shape)
    x, y = normal(clients, samples, *shape, dtype=torch.float64), torch.arange(6).view(2, 3) % 4
    keep = [normal(clients, samples, *inner, seed=k).gt(0).double() for k, (_, inner) in enumerate(drops)]

    def loss(
        parameters: dict[str, torch.Tensor], x: torch.Tensor, y: torch.Tensor, keep: list[torch.Tensor]
    ) -> torch.Tensor:
        for (layer, _), mask in zip(drops, keep, strict=True):
            layer.keep = mask
        return cross_entropy(functional_call(module, parameters, (x,)), y)

    weights = {path: p.detach() for path, p in module.named_parameters()}
    own = {path: p + 0.01 * normal(clients, *p.shape, dtype=torch.float64) for path, p in weights.items()}
    together = vmap(grad(loss))(own, x, y, keep)
    for k in range(clients):
        alone = grad(loss)({path: p[k] for path, p in own.items()}, x[k], y[k], [mask[k] for mask in keep])
        for path, gradient in alone.items():
            torch.testing.assert_close(together[path][k], gradient, rtol=1e-6, atol=1e-9)
    if drops:
        assert not torch.equal(
            together["0.weight"][0], grad(loss)(weights, x[0], y[0], [m[1] for m in keep])["0.weight"]
        )


@pytest.mark.ci
def test_a_batch_of_one_sample() -> None:
    module = filled("mobilenet_v3", (1, 17, 17), 3)
    cross_entropy(module(normal(1, 1, 17, 17)), torch.tensor([1])).backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in module.parameters())


@pytest.mark.ci
def test_stochastic_depth_skips_whole_samples() -> None:
    block = filled("efficientnet_b0", CIFAR, 3).get_submodule("5")
    depth = block.get_submodule("depth")
    assert isinstance(depth, Dropout)
    x = normal(2, 24, 4, 4)
    whole = block(x)
    depth.keep = torch.tensor([0.0, 1.0]).view(2, 1, 1, 1)
    skipped = block(x)
    assert torch.equal(skipped[0], x[0])
    torch.testing.assert_close(skipped[1], x[1] + (whole[1] - x[1]) / (1 - 0.2 * 2 / 16))


@pytest.mark.ci(only=["mobilenet", "efficientnet", "resnet"])
@pytest.mark.parametrize(
    ("name", "least", "too_small"),
    [
        ("cnn", 4, (1, 8, 3)),
        ("mcmahan_cnn", 4, (1, 3, 28)),
        ("femnist_cnn", 6, (1, 5, 28)),
        ("lenet5", 12, (1, 11, 28)),
        ("xie_cnn", 4, (3, 32, 3)),
        ("vgg11", 32, (3, 31, 32)),
        ("mobilenet_v3", 17, (3, 16, 17)),
        ("efficientnet_b0", 17, (3, 17, 16)),
        ("resnet18_gn", 17, (3, 16, 17)),
    ],
)
def test_too_small_images(name: str, least: int, too_small: Shape) -> None:
    shown = r", ".join(map(str, too_small))
    with pytest.raises(ValueError, match=rf"^{name} needs .* h, w >= {least}, not \[{shown}\]$"):
        blank(MODELS[name](), too_small, 10)
    with pytest.raises(ValueError, match=rf"h, w >= {least}, not \[64\]"):
        blank(MODELS[name](), (64,), 10)
    assert facts(MODELS[name](), (1, least, least), 10).d > 0


@pytest.mark.parametrize("name", ["cnn", "femnist_cnn"])
def test_blanks_hold_nothing_and_draw_nothing(name: str) -> None:
    before = torch.get_rng_state()
    module = blank(MODELS[name](), CIFAR, 10)
    assert all(p.is_meta for p in module.parameters())
    macs(module, CIFAR)
    dropouts(module, CIFAR)
    assert torch.equal(torch.get_rng_state(), before)
