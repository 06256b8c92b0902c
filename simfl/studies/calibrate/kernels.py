"""The least seconds of each kind of work: of kernels and trainings by themselves, again and again.

Every kernel is called at sizes where the work in question dominates. Where it costs something a call, an item
or a step besides what it costs a byte or a multiply-add, it is called at two sizes and both are solved for.
All of it on one thread, in CPU seconds, and training on a GPU in those of its kernels. A measurement is one
call, the fastest of a few, whose code and data are in the caches; `passes` repeats it, in any order. What the
same work takes in a step, where they often are not, is `rounds`' to find.
"""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.optimize import nnls

from simfl.crypto import field, keys, mds, prg, quantize, shamir, signatures
from simfl.crypto.row_routing import LONG_BYTES
from simfl.crypto.short_loops import SHORT
from simfl.dataplane import audit
from simfl.dataplane.handles import U32, Handle
from simfl.dataplane.work import CODEC
from simfl.learning.data import Split
from simfl.learning.models import MODELS, Model
from simfl.learning.models.facts import facts, law_name
from simfl.learning.server_opt import Averaging
from simfl.learning.sgd import SIZES, LocalSgd, TrainingTime, WayName, fit
from simfl.learning.trainer import Trainer
from simfl.live.wire import Codec, Parser, messages
from simfl.protocols.channels import aads_of, nonces_of
from simfl.protocols.index_views import Same
from simfl.protocols.keyed_messages import MaskedUpload
from simfl.protocols.machine import Params
from simfl.protocols.registry import PROTOCOLS
from simfl.random_streams import Streams

Q = field.Q
D = 2**16
"""Elements of long vectors, which fit into a core's caches."""
STREAMS = Streams(1)
REPEATS = 3
"""Times that a measurement is made in a pass; the fastest counts."""
CACHE_FILLER = np.zeros(4_000_000)  # 32 MB
Rates = dict[str, float]


def seconds(
    call: Callable[[], object],
    repeats: int = REPEATS,
    cold: bool = False,
    now_ns: Callable[[], int] = time.thread_time_ns,
) -> float:
    """Return the least seconds of a call, by the CPU time unless `now_ns` is another clock; cold: with other
    data in the processor's caches each time."""
    times = []
    for _ in range(repeats):
        if cold:
            CACHE_FILLER.sum()
        start_ns = now_ns()
        call()
        times.append(now_ns() - start_ns)
    return min(times) / 1e9


def seed(*names: str | int) -> np.ndarray:
    return np.frombuffer(STREAMS.bytes(*names), np.uint8).reshape(1, 32)


def solve(*rows: tuple[float, float, float]) -> tuple[float, float]:
    """Return (a, b) of T = a x + b y over rows (x, y, T), neither negative, by least relative squares."""
    x, y, t = np.array(rows).T
    (a, b), _ = nnls(np.stack([x / t, y / t], axis=1), np.ones(len(t)))
    return max(float(a), 1e-12), max(float(b), 1e-15)


def of_keys() -> Rates:
    """Measure key pairs, agreements, authenticated encryption, and signatures."""
    secret, n = seed("secret"), 50
    publics = np.concatenate([keys.public(seed("peer", i)) for i in range(n)])
    agreed = keys.agree(secret, publics, b"x")
    sealed_s = {}
    for length in (100, LONG_BYTES, 3 * LONG_BYTES):
        items, sender = np.zeros((n, length), np.uint8), Same(0, n)
        aads = aads_of(sender, range(1, n + 1))
        seal = partial(keys.seal, agreed, items, nonces_of(sender, sender), aads)
        sealed_s[length] = seconds(seal, 7) / n
    agree_s = seconds(lambda: keys.agree(secret, publics, b"x")) / n
    public_s = seconds(lambda: keys.public(secret), 15)
    # Both of long rows, each of which takes time of its own.
    byte_s = (sealed_s[3 * LONG_BYTES] - sealed_s[LONG_BYTES]) / (2 * LONG_BYTES)
    signed, said = signatures.sign(secret, bytes(400)), [bytes(400)] * n  # a set of a hundred users
    made = (np.repeat(signatures.public(secret), n, 0), np.repeat(signed, n, 0), said)
    sign_s = seconds(lambda: signatures.sign(secret, bytes(400)), 15)
    verify_s = seconds(lambda: signatures.verify(*made)) / n
    return {
        "x25519": public_s, "agree": agree_s, "sign": sign_s, "verify": verify_s,
        "aead_item": sealed_s[100], "aead_byte": max(byte_s, 1e-15),
    }  # fmt: skip


def of_vectors() -> Rates:
    """Measure masks, sums and quantisation of long vectors."""
    a, b = prg.expand(seed("a"), D, Q), prg.expand(seed("b"), D, Q)
    rows, weights = [a, b] * 5, [64, 32] * 5
    delta = (prg.expand(seed("c"), D, Q) / Q - 0.5).astype(np.float32)
    quantised = quantize.quantise(delta, 3, 1.0, 2**16, seed("q"), Q, False)
    forth_s = seconds(lambda: quantize.quantise(delta, 3, 1.0, 2**16, seed("q"), Q, False))
    back_s = seconds(lambda: quantize.dequantise(quantised, 2**16, 3, Q))
    g = delta.astype(np.float64)
    seeds, masked = np.concatenate([seed("mask", i) for i in range(10)]), []
    for length in (2 * SHORT, D):  # compiled, both of them
        x = np.zeros((1, length), np.uint32)
        masked.append((10.0, 10.0 * length, seconds(partial(prg.mask, x, seeds, [1] * 10, Q))))
    return {
        "prg_seed": solve(*masked)[0],
        "prg_element": seconds(lambda: prg.expand(seed("a"), D, Q)) / D,
        "field_add": seconds(lambda: field.add(a, b, Q)) / D,
        "field_mac": seconds(lambda: field.weighted_sum(rows, weights, Q)) / (len(rows) * D),
        "quantise_element": (forth_s + back_s) / (2 * D),
        "real_mac": seconds(lambda: audit.real_sum([delta] * 5, [1.0] * 5)) / (5 * D),
        "apply_element": seconds(lambda: Averaging().apply(delta, g, 1.0)) / D,
    }


def of_wire() -> Rates:
    """Measure a message's encoding and decoding, half of both a byte, in fresh memory as in a live run."""
    kind, params = PROTOCOLS["lightsecagg"](), Params(d=D, q=Q, T=1, U=2, t=2, k=2, clip=1.0)
    codec = Codec(messages(kind, params)[0], 2, kind.offline, params.q)
    upload = MaskedUpload(Handle(1, D, U32, prg.expand(seed("upload"), D, Q)[None]))
    frame = memoryview(codec.encode(upload, 0, 0, 0))
    forth_s = seconds(lambda: codec.encode(upload, 0, 0, 0))
    back_s = seconds(lambda: list(map(codec.decode, Parser(len(frame)).feed(frame))))
    return {CODEC: (forth_s + back_s) / (2 * upload.size_bytes)}


def of_codes() -> Rates:
    """Measure MDS codes and Shamir shares, all by compiled loops."""
    coded, entries, decoded, shared, reconstructed = [], [], [], [], []
    for n, U, T, m in ((12, 8, 4, 20_000), (100, 70, 50, 10_000)):
        points, z = list(range(1, n + 1)), prg.expand(seed("z"), (U - T) * m, Q)
        noise_s = seconds(partial(prg.expand, seed("n"), T * m, Q))
        encode = partial(mds.encode, z, seed("n"), points, U, T, Q)
        coded.append((float(n * m), float(n * U * m), max(seconds(encode) - noise_s, 1e-9)))
        one = partial(mds.encode, z[:, : U - T], seed("n"), points, U, T, Q)  # rows of one element
        entries.append((1.0, float(n * U), seconds(one, 7)))
    for u in (70, 100, 140):
        decode = partial(mds.decode, np.ones((u, 1), np.uint32), range(1, u + 1), u, 1, u - 1, Q)
        decoded.append((1.0, float(u**2), seconds(decode, 7, cold=True)))  # it comes once a round
    secrets = np.concatenate([seed("s"), seed("b")])
    for n, t in ((4, 2), (100, 51)):
        at = list(range(1, n + 1))
        taken = seconds(partial(shamir.share, secrets, seed("c"), at, t))
        shared.append((1.0, 9.0 * len(secrets) * n * t, taken))
    for t, count in ((11, 60), (51, 20)):
        at = list(range(1, t + 2))
        rows = list(shamir.share(secrets[:1], seed("c"), at, t)[:, None])
        others = [np.delete(np.arange(t + 1), k % t) for k in range(count)]  # never the same as just before
        held = [(users, np.zeros(t, np.int64)) for users in others]
        taken = seconds(partial(shamir.reconstruct_many, rows, held, at))
        reconstructed.append((1.0, float(t**2), taken / len(held)))
    element_s, mac_s = solve(*coded)
    secret_s, pair_s = solve(*reconstructed)
    return {
        "mds_element": element_s, "mds_mac": mac_s, "mds_coefficient": solve(*entries)[1],
        "mds_inverse": solve(*decoded)[1], "shamir_mac": solve(*shared)[1],
        "secret": secret_s, "lagrange_pair": pair_s,
    }  # fmt: skip


@dataclass(frozen=True)
class Training:
    """A model on samples of a shape, in batches; device: "cpu" or "cuda"; tokens: their number, 0 of none."""

    model: Model
    shape: tuple[int, ...]
    classes: int
    batch_size: int
    device: str = "cpu"
    tokens: int = 0

    @property
    def law_name(self) -> str:
        return law_name(self.model, facts(self.model, self.shape, self.classes, self.tokens > 0))


# Models on 8 x 8 digits have no law: minibatches outweigh their samples there, and are charged by themselves.
PAPERS_TRAININGS = (
    Training(MODELS["logistic"](), (1, 28, 28), 10, 10),
    Training(MODELS["mcmahan_cnn"](), (1, 28, 28), 10, 10),
    Training(MODELS["femnist_cnn"](), (1, 28, 28), 62, 10),
    Training(MODELS["lenet5"](), (3, 32, 32), 10, 10),
    Training(MODELS["lenet5"](), (3, 32, 32), 10, 50),
)


def of_training(training: Training) -> Callable[[Sequence[int]], TrainingTime]:
    """Return a measurement of the law T = a + s S + b E n, a fit to clients of `SIZES`. Its argument is their
    order, in which they are timed `REPEATS` times; of each the fastest counts."""
    rng = STREAMS.rng("samples", training.model.name)
    sizes = [math.ceil(k * training.batch_size) for k in SIZES]
    size = max(sizes), *training.shape
    x = rng.integers(0, training.tokens, size) if training.tokens else rng.random(size, np.float32)
    y = rng.integers(0, training.classes, len(x))
    split = Split(x, y, x[:1], y[:1], training.classes)
    sgd = LocalSgd(1, training.batch_size, 0.1)
    softmax = facts(training.model, training.shape, training.classes, training.tokens > 0).softmax
    way: WayName = "closed_form" if softmax else "loop"  # alone, as on a device of its own
    parts = [np.arange(size) for size in sizes]
    trainer = Trainer(split, parts, training.model, sgd, training.device, way)
    weights = trainer.initial(bytes(32))

    def measure(order: Sequence[int]) -> TrainingTime:
        fastest = dict.fromkeys(order, math.inf)
        for _ in range(REPEATS):
            for user in order:
                call = partial(trainer.training, weights, user, bytes(32), 0)
                taken = seconds(call, repeats=1, now_ns=trainer.timer.now_ns)
                fastest[user] = min(fastest[user], taken)
        return fit([(trainer.steps(user), sizes[user], taken) for user, taken in fastest.items()])

    return measure
