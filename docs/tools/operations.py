"""The table of `Ops` in docs/api.md: each operation with its result, and what it is charged as.

Each operation is called once on lengths alone, at the sizes below. So shapes and charges are those of the
code, and a test finds an operation that is missing here.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from simfl.crypto.noisy_rounding import Lattice
from simfl.dataplane.handles import F32, F64, U8, U32, Handle
from simfl.dataplane.ops import Ops
from simfl.dataplane.shadow import ShadowOps
from simfl.dataplane.work import WORK

N, D, U, T, SHARES = 5, 10_000, 3, 1, 2
"""Users, elements of an update, and the thresholds of the codes."""

HEAD = f"""A handle has rows x columns. The examples have n = {N} users, d = {D:,} elements,
U = {U} and T = {T} of an MDS code, and t = {SHARES} of Shamir's scheme. The
kinds of work are those of a device profile, listed below. Each operation is charged as one `call`, too.

| operation | returns | result | charged as |
|---|---|---|---|"""

KINDS = """
<a id="counted-work"></a>A device profile has the seconds of each kind of work. Here n is the number of
shares or points, d a vector's length, and m = d / (U - T), rounded up, a coded share's.

| kind of work | counts |
|---|---|"""

APART: frozenset[str] = frozenset({"call", "run_uncharged", "replace"})
"""Operations without a charge or a shape of their own."""


def examples() -> dict[str, tuple[Any, ...]]:
    """Return the arguments of each operation, by its name."""
    secret, seed = Handle(1, 32, U8), Handle(1, 32, U8)
    keys, vector, vectors = Handle(N, 32, U8), Handle(1, D, U32), Handle(N, D, U32)
    update, points = Handle(1, D, F32), range(1, N + 1)
    empty, signed = [b""] * N, Handle(N, 64, U8)
    coded = Handle(U, D // (U - T), U32)
    shares = Handle(N, 36, U8)
    noisy = Lattice(D, 1.0, 1_000.0, 2_000_000, "skellam", (1e6,), rotation=bytes(32))
    rounded = Handle(1, noisy.length, U32)
    return {
        "secret": (bytes(32),),
        "pick": (vectors, range(N)),
        "gather": ([vector] * N, [0] * N),
        "join": ([vector] * N,),
        "parts": (vectors, [0] * N, 100),
        "tamper": (vectors, 0),
        "public": (secret,),
        "agree": (secret, keys, b""),
        "seal": (keys, shares, empty, empty),
        "open": (keys, Handle(N, 52, U8), empty, empty, range(N), U8),
        "signing_key": (secret,),
        "sign": (secret, b""),
        "verify": (keys, signed, empty, range(N)),
        "share": (secret, seed, points, SHARES),
        "reconstruct": ([shares], [(range(SHARES), range(SHARES))], points),
        "prg": (seed, D),
        "mask": (vector, keys, [1] * N),
        "add": (vector, vector),
        "sub": (vector, vector),
        "total": (vectors,),
        "weighted_sum": ([vector] * N, [1] * N),
        "encode": (vector, seed, points, U, T),
        "decode": (coded, points[:U], U, T, D),
        "quantise": (update, 1, 4.0, 65_536, seed, False),
        "dequantise": (vector, 65_536, N),
        "perturb": (update, Handle(2, 32, U8), noisy, False),
        "add_noise": (rounded, secret, "skellam", [1e6], -1, D),
        "mean_of": (rounded, noisy, N),
        "real_sum": ([update] * N, [1.0] * N),
        "divide": (Handle(1, D, F64), 2.0),
        "train": (_Trainer(), update, 0, seed, 0),
        "scale": (update, 0.5),
        "clip": (abs, update),
        "apply": (abs, update),
        "moments": (abs, Handle(2, D, F64)),
    }


class _Trainer:
    """Training of a network of 1,000 multiply-adds on 50 samples, in minibatches of ten."""

    d, training = D, None

    def work(self, user: int, steps: int | None = None) -> dict[str, int]:
        return {"train_mac": 3 * 1_000 * 50, "train_step": 5}


def operations() -> dict[str, Any]:
    """Return the operations of `Ops` that return a handle, by name, in the order of its source."""
    methods = {name: method for name, method in vars(Ops).items() if inspect.isfunction(method)}
    return {
        name: method
        for name, method in methods.items()
        if not name.startswith("_") and name not in APART and method.__annotations__.get("return") is Handle
    }


def charged(ops: Ops, name: str, arguments: tuple[Any, ...]) -> tuple[Handle, Mapping[str, int]]:
    """Return the result of an operation, and the work that it is charged as, but for its call."""
    ops.begin_step((name,), "offline")
    handle = getattr(ops, name)(*arguments)
    (segment,) = ops.end_step()
    return handle, {kind: amount for kind, amount in segment.work.items() if kind not in ("step", "call")}


def lines() -> Iterator[str]:
    """Yield the lines of both tables: operations, kinds of work."""
    yield HEAD
    ops, arguments = ShadowOps(2**32 - 5), examples()
    for name, method in operations().items():
        handle, work = charged(ops, name, arguments[name])
        parameters = [key for key in inspect.signature(method).parameters if key != "self"]
        meaning = (inspect.getdoc(method) or "").partition("\n\n")[0]
        kinds = ", ".join(f"{amount:,} `{kind}`" for kind, amount in work.items())
        result = f"{handle.rows} x {handle.columns:,} {handle.dtype}"
        yield f"| `{name}({', '.join(parameters)})` | {' '.join(meaning.split())} | {result} | {kinds} |"
    yield KINDS
    yield from (f"| `{kind}` | {counts} |" for kind, counts in WORK.items())
