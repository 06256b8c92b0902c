"""LightSecAgg Theorem 2 (eq. 39): the mean squared gradient of buffered rounds against its upper limit.

Quadratics F_i(x) = (x - a_i)' H (x - a_i) / 2 with one H: L, F*, sigma_g^2 are exact, sigma_l^2 is 0, G is
the largest squared gradient of a user at the global models of the run. Updates are rounded by the quantiser
that runs use; staleness is uniform on 0 .. tau_max.

As printed, eq. 39 does not go with eqs. 24 and 38. Its first term is that of a server that adds up a buffer,
and eq. 38 takes the mean: eta_g there is eta_g / K here. Lemma 2 rounds a gradient, and eq. 38 an update,
which is eta_l times a sum of gradients: the variance d / (4 c_l^2) of an update is d / (4 c_l^2 eta_l^2) of
a gradient. And nothing stands for the models that move in local steps: beside eta_g^2 K^2 tau_max^2, a + 1
is needed. The limit as printed is judged; the one with these put right is ours, and shown.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from papers.bounds import buffered_bound
from papers.entry import Cell, Entry, Evidence, Place
from simfl.crypto.quantize import signed_levels
from simfl.random_streams import Streams

N, K, E, D = 100, 10, 2, 20
L = 1.0
H = np.linspace(0.1, L, D)
ETA_L, STEP = 0.05, 5e-4
"""eta_l, and eta_l eta_g E of eq. 38."""
ETA_G = STEP / (ETA_L * E)
ROUNDS, REPEATS = 8000, 4
SPREAD = 0.1
"""Of a_i around their mean, which is x*."""
CLIP = 4.0

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Found:
    """The mean of ||grad F||^2 over rounds; F(x_0) - F*; G; sigma_g^2."""

    gradient2: float
    gap: float
    G: float
    sigma_g2: float


def played(start: float, c_l: int, tau_max: int, seed: int) -> Found:
    """Run eq. 38 from x* + start in every coordinate."""
    streams = Streams(seed)
    a = SPREAD * streams.rng("users").standard_normal((N, D))
    a -= a.mean(0)
    rng, rows = streams.rng("rounds", c_l, tau_max), np.arange(REPEATS)[:, None]
    models = np.full((ROUNDS + 1, REPEATS, D), start)
    decay = 1 - (1 - ETA_L * H) ** E  # of E local steps on a quadratic: x - x_E = decay (x - a_i)
    for t in range(ROUNDS):
        users = np.argpartition(rng.random((REPEATS, N)), K)[:, :K]
        taus = np.minimum(rng.integers(0, tau_max + 1, (REPEATS, K)), t)
        delta = decay * (models[t - taus, rows] - a[users])
        rounding = np.frombuffer(streams.bytes("rounding", t), np.uint8)[None]
        rounded = signed_levels(delta.reshape(1, -1), CLIP, c_l, rounding).reshape(delta.shape) / c_l
        models[t + 1] = models[t] - ETA_G * rounded.mean(1)
    own = ((H * (models[::100, :, None] - a)) ** 2).sum(-1).max()
    gap = 0.5 * float((H * start**2).sum())
    return Found(
        float(((H * models[:-1]) ** 2).sum(-1).mean()), gap, float(own), float(((H * a) ** 2).sum(1).mean())
    )


def limit(found: Found, c_l: int, tau_max: int, printed: bool) -> float:
    """Eq. 39, as printed, or with the three constants put right."""
    local2 = D / (4 * c_l**2) / (1 if printed else ETA_L**2)
    sigma2 = found.G + found.sigma_g2 + local2
    eta_g = ETA_G if printed else ETA_G / K
    return buffered_bound(
        K=K, E=E, J=ROUNDS, L=L, eta_l=ETA_L, eta_g=eta_g, gap=found.gap, local2=local2, sigma2=sigma2,
        tau_max=tau_max, drift=not printed,
    )  # fmt: skip


def run(place: Place) -> Evidence:
    """Far from the optimum and at it, coarse and fine steps, fresh and stale."""
    cells = []
    for words, start in (("far from x*", 3.0), ("from x*", 0.0)):
        for c_l in (2**2, 2**16):
            for tau_max in (0, 10):
                found = played(start, c_l, tau_max, ENTRY.seed)
                label = f"{words}, c_l = 2^{c_l.bit_length() - 1}, tau_max = {tau_max}"
                cells += judged(label, found, c_l, tau_max)
    return Evidence(tuple(cells))


def judged(label: str, found: Found, c_l: int, tau_max: int) -> list[Cell]:
    """The limit as printed, and the measured part of the corrected one."""
    most, corrected = (limit(found, c_l, tau_max, printed) for printed in (True, False))
    remark = f"{found.gradient2 / most:.2g} of the limit"
    statement = f"the limit is {corrected:.4g}"
    return [
        Cell(f"{label}, as printed", most, found.gradient2, "", "at most", remark=remark),
        Cell(
            f"{label}, part of the corrected limit",
            None,
            found.gradient2 / corrected,
            "",
            "none",
            remark=statement,
        ),
    ]


ENTRY = Entry(
    name="lightsecagg_theorem2",
    paper="LightSecAgg",
    where="Theorem 2 (App. F.4)",
    title="Mean squared gradient of buffered rounds against eq. 39",
    on="quadratics of N = 100 users with known constants, K = 10, E = 2, staleness uniform on 0 .. tau_max",
    how="The measured mean of ||grad F||^2 over 8,000 rounds may not exceed eq. 39 as it is printed with eq."
    " 38. Its T, which App. F does not define, is read as J, the number of rounds. The measured part of a"
    " limit with three constants put right is shown and not judged: that limit is not the paper's.",
    run=run,
    disagreement="As printed the limit does not hold. Eq. 38 takes the mean of a buffer, for which the first"
    " term is K times too small; it rounds updates and not gradients, whose variance is 1 / eta_l^2 times"
    " larger; and without staleness no term is left for the drift of local steps. With all three put right it"
    " holds; that each of the three is needed was not tried apart.",
)
