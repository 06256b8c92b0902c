"""The seconds of each kind of work: of kernels and trainings by themselves, and of the steps of small rounds.

Every kernel is called at sizes where the work in question dominates. Where it costs something a call, an item
or a step besides what it costs a byte or a multiply-add, it is called at two sizes and both are solved for.
All of it on one thread, in CPU seconds, and training on a GPU in those of its kernels. A measurement is one
call, the fastest of a few; `passes` repeats it.

`ONE_BY_ONE`, the work that costs something a time whatever its size, is from small rounds of short updates,
whose steps are timed beside their counted work. Seconds that the other kinds do not explain are shared out by
least relative squares, none of them negative. Agreements too: amid a round they take a tenth longer.
"""

import gc
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
from scipy.optimize import nnls

from simfl.crypto import field, keys, mds, prg, quantize, shamir, signatures
from simfl.dataplane import audit
from simfl.dataplane.eager import EagerOps
from simfl.dataplane.handles import F32, U32, Handle
from simfl.dataplane.work import CODEC
from simfl.learning.data import Split
from simfl.learning.data.unpublished import Digits
from simfl.learning.models import MODELS, Model
from simfl.learning.models.facts import facts, law_name
from simfl.learning.partition import Iid
from simfl.learning.server_opt import Averaging
from simfl.learning.sgd import SIZES, Law, LocalSgd, WayName, fit
from simfl.learning.trainer import Trainer
from simfl.live.wire import Codec, Parser, messages
from simfl.protocols.channels import aads_of, nonces_of
from simfl.protocols.index_views import Same
from simfl.protocols.keyed_messages import MaskedUpload
from simfl.protocols.loopback import run_round
from simfl.protocols.machine import SERVER, Effects, Params, Update
from simfl.protocols.protocol import Mode
from simfl.protocols.registry import PROTOCOLS
from simfl.random_streams import Entropy, Streams
from simfl.studies.watch import watched

Q = field.Q
D = 1_000_000
STREAMS = Streams(1)
CACHE_FILLER = np.zeros(4_000_000)  # 32 MB
Rates = dict[str, float]


def seconds(
    call: Callable[[], object],
    repeats: int = 3,
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
    rows = []
    for length in (100, 120_000):
        items, sender = np.zeros((n, length), np.uint8), Same(0, n)
        aads = aads_of(sender, range(1, n + 1))
        seal = partial(keys.seal, agreed, items, nonces_of(sender, sender), aads)
        rows.append((n, n * length, seconds(seal)))
    agree_s = seconds(lambda: keys.agree(secret, publics, b"x")) / n
    public_s, (item_s, byte_s) = seconds(lambda: keys.public(secret), 15), solve(*rows)
    signed, said = signatures.sign(secret, bytes(400)), [bytes(400)] * n  # a set of a hundred users
    made = (np.repeat(signatures.public(secret), n, 0), np.repeat(signed, n, 0), said)
    sign_s = seconds(lambda: signatures.sign(secret, bytes(400)), 15)
    verify_s = seconds(lambda: signatures.verify(*made)) / n
    return {
        "x25519": public_s, "agree": agree_s, "sign": sign_s, "verify": verify_s,
        "aead_item": item_s, "aead_byte": byte_s,
    }  # fmt: skip


def of_vectors() -> Rates:
    """Measure masks, sums and quantisation over a million elements."""
    a, b = prg.expand(seed("a"), D, Q), prg.expand(seed("b"), D, Q)
    rows, weights = [a, b] * 5, [64, 32] * 5
    delta = (prg.expand(seed("c"), D, Q) / Q - 0.5).astype(np.float32)
    quantised = quantize.quantise(delta, 3, 1.0, 2**16, seed("q"), Q, False)
    forth_s = seconds(lambda: quantize.quantise(delta, 3, 1.0, 2**16, seed("q"), Q, False))
    back_s = seconds(lambda: quantize.dequantise(quantised, 2**16, 3, Q))
    g = delta.astype(np.float64)
    seeds, few = np.concatenate([seed("mask", i) for i in range(50)]), np.zeros((1, 16), np.uint32)
    return {
        "prg_seed": seconds(lambda: prg.mask(few, seeds, [1] * 50, Q)) / 50,
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
    codec = Codec(messages(kind, params)[0], kind, params, users=2)
    upload = MaskedUpload(Handle(1, D, U32, prg.expand(seed("upload"), D, Q)[None]))
    frame = memoryview(codec.encode(upload, 0, 0, 0))
    forth_s = seconds(lambda: codec.encode(upload, 0, 0, 0))
    back_s = seconds(lambda: list(map(codec.decode, Parser(len(frame)).feed(frame))))
    return {CODEC: (forth_s + back_s) / (2 * upload.size_bytes)}


def of_codes() -> Rates:
    """Measure MDS codes and Shamir shares. `mds_coefficient` is of a decoding matrix; an entry of a coding
    matrix takes about as long."""
    points, U, T = list(range(1, 101)), 70, 50
    z = prg.expand(seed("z"), 200_000, Q)
    m = mds.share_length(z.shape[1], U, T)
    noise = seconds(lambda: prg.expand(seed("n"), T * m, Q))
    encode = seconds(lambda: mds.encode(z, seed("n"), points, U, T, Q)) - noise
    secrets = np.concatenate([seed("s"), seed("b")])
    decoded, shared, reconstructed = [], [], []
    for u in (20, 60, 140):
        decode = partial(mds.decode, np.ones((u, 1), np.uint32), range(1, u + 1), u, 1, u - 1, Q)
        decoded.append((1.0, float(u**2), seconds(decode, 7, cold=True)))  # it comes once a round
    for n, t in ((4, 2), (100, 51)):
        at = list(range(1, n + 1))
        taken = seconds(partial(shamir.share, secrets, seed("c"), at, t))
        shared.append((1.0, 9.0 * len(secrets) * n * t, taken))
    for t in (3, 51):
        at = list(range(1, t + 2))
        rows = list(shamir.share(secrets[:1], seed("c"), at, t)[:, None])
        others = [np.delete(np.arange(t + 1), k % t) for k in range(20)]  # never the same as just before
        held = [(users, np.zeros(t, np.int64)) for users in others]
        taken = seconds(partial(shamir.reconstruct_many, rows, held, at))
        reconstructed.append((1.0, float(t**2), taken / len(held)))
    rates = {"mds_mac": encode / (len(points) * U * m)}
    rates["decoding"], rates["mds_coefficient"] = solve(*decoded)
    rates["sharing"], rates["shamir_mac"] = solve(*shared)
    rates["secret"], rates["lagrange_pair"] = solve(*reconstructed)
    return rates


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


def of_training(training: Training) -> Callable[[], Law]:
    """Return a measurement of the law T = a + b E n: clients of five sizes once each, and a fit to them."""
    rng = STREAMS.rng("samples", training.model.name)
    sizes = sorted({math.ceil(k * training.batch_size) for k in SIZES})
    size = sizes[-1], *training.shape
    x = rng.integers(0, training.tokens, size) if training.tokens else rng.random(size, np.float32)
    y = rng.integers(0, training.classes, len(x))
    split = Split(x, y, x[:1], y[:1], training.classes)
    sgd = LocalSgd(1, training.batch_size, 0.1)
    softmax = facts(training.model, training.shape, training.classes, training.tokens > 0).softmax
    way: WayName = "closed_form" if softmax else "loop"  # alone, as on a device of its own
    parts = [np.arange(size) for size in sizes]
    trainer = Trainer(split, parts, training.model, sgd, training.device, way)
    weights = trainer.initial(bytes(32))
    calls = [partial(trainer.training, weights, user, bytes(32), 0) for user in range(len(sizes))]
    timed = partial(seconds, repeats=1, now_ns=trainer.timer.now_ns)
    return lambda: fit([(size, timed(call)) for size, call in zip(sizes, calls, strict=True)])


def of_steps() -> Callable[[], Rates]:
    """Return a measurement of a minibatch and a multiply-add: tiny models on digits, clients of two sizes."""
    split = Digits().loaded(STREAMS.rng("data"))
    trainers = [
        Trainer(split, Iid().dealt(split, users, STREAMS.rng("partition")), MODELS[model](),
                LocalSgd(5, 10, 0.1), "cpu")
        for model in ("logistic", "cnn") for users in (100, 20)
    ]  # fmt: skip

    def measure() -> Rates:
        rows = []
        for trainer in trainers:
            taken = seconds(partial(trainer.training, trainer.initial(bytes(32)), 0, bytes(32), 0))
            work = trainer.work(0)
            rows.append((float(work["train_step"]), float(work["train_mac"]), taken))
        return dict(zip(("train_step", "train_mac"), solve(*rows), strict=True))

    return measure


ONE_BY_ONE = ("step", "call", "row", "agree", "aead_item", "sharing", "secret", "decoding")
COHORTS = (8, 32)  # users of the small rounds
SHORT_D = 16
Steps = dict[tuple[Any, ...], Counter[str]]
"""(protocol, users, server or not, call, message) -> the work of all such steps, with their `cpu_ns`."""


def play(protocol: str, users: int, steps: Steps, round_: int) -> None:
    """Run one round, one user of it lost, and add its steps to `steps`."""
    kind, ops = PROTOCOLS[protocol](), EagerOps(Q)
    params = Params(d=SHORT_D, q=Q, T=users // 4, U=users // 2, t=users // 4 + 1, k=users // 2, clip=1.0)

    def timed(party: int, name: str, own: Callable[..., Effects], *arguments: Any) -> Effects:
        if name == "expire":  # stale timers too expire here, so that it is many things in one
            return own(*arguments)
        ops.begin((), "offline")
        effects = own(*arguments)
        message = getattr(arguments[-1], "kind", "") if arguments else ""
        for segment in ops.end():
            steps[protocol, users, party == SERVER, name, message].update(
                segment.work, cpu_ns=segment.taken_ns
            )
        return effects

    roots = {u: Entropy(bytes(32), protocol, users, round_, u) for u in (SERVER, *range(users))}
    update = Update(Handle(1, SHORT_D, F32, np.zeros((1, SHORT_D), np.float32)), 1)
    clients = {u: watched(kind.client(u, params, ops, roots[u]), u, timed) for u in range(users)}
    run_round(
        watched(kind.server(range(users), params, ops, roots[SERVER]), SERVER, timed),
        clients,
        dict.fromkeys(range(users), update),
        fate=lambda user, message: "lose" if (user, message.point) == (1, "upload") else "deliver",
        offline=kind.offline,
    )


def of_rounds(known: Mapping[str, float], round_: int) -> Rates:
    """Return the seconds of `ONE_BY_ONE` from rounds of all synchronous protocols, given the other kinds'."""
    steps: Steps = defaultdict(Counter)
    collecting = gc.isenabled()
    gc.disable()  # a collection amid a step would be taken for its work
    try:
        for protocol, users in product(PROTOCOLS, COHORTS):
            if PROTOCOLS[protocol].mode is Mode.ROUNDS:
                play(protocol, users, steps, round_)
    finally:
        if collecting:
            gc.enable()
    rows, left = [], []
    for work in steps.values():  # relative: each row is divided by the seconds that it explains
        taken_s = work.pop("cpu_ns") / 1e9
        explained = sum(amount * known[kind] for kind, amount in work.items() if kind not in ONE_BY_ONE)
        rows.append([work[kind] / taken_s for kind in ONE_BY_ONE])
        left.append(max(0.0, 1 - explained / taken_s))
    found, _ = nnls(np.array(rows), np.array(left))
    return {kind: max(float(rate), 1e-12) for kind, rate in zip(ONE_BY_ONE, found, strict=True)}
