"""Images from the updates that a server works out (Geiping et al. 2020; Multi-RoundSecAgg Figs 1 and 9)."""

from typing import Literal

import numpy as np

from simfl.config.blocks import Count, NonNegative, Positive
from simfl.errors import BadInput
from simfl.learning.data.dataset import F32, I64, Split
from simfl.privacy.attacks.attack import (
    Attack,
    Finding,
    Knowledge,
    Outcome,
    Truth,
    View,
    pixels,
    strips_of,
)
from simfl.privacy.attacks.least_squares import estimated, window
from simfl.privacy.attacks.similarity import mse, psnr, ssim
from simfl.privacy.least_squares import errors

MAX_SAMPLES = 8  # of a user: beyond, neither this search nor the paper's finds single images


class Inversion(Attack):
    """Users' images from the updates that least squares finds, by descent on the cosine of gradients.

    Updates that the server sees user by user are inverted as they are; from sums alone, the updates are first
    worked out from those of many rounds.
    """

    kind: Literal["inversion"] = "inversion"
    knowledge = Knowledge(
        "the labels of a user's images and their number; one pass over them as a single batch",
        "means over the users attacked: error of the update (eq. 35); psnr in dB, mse and ssim of images; "
        "blind: psnr of the mean test image of the label, which takes no update",
    )
    users: Count = 8
    """Users who are attacked: the first that took part."""
    steps: Count = 300
    """Steps of a search."""
    lr: Positive = 0.1
    """The step in pixels, which falls to a thousandth."""
    variation: NonNegative = 0.01
    """The weight of the total variation."""
    starts: Count = 2
    """Searches of a user, each from other noise; the one of the least cost counts."""
    rounds: Count | None = None
    """The last so many rounds are attacked; 2 N unless given."""

    def problem(self, split: Split, parts: list[I64]) -> str | None:
        most = max(map(len, parts))
        if most > MAX_SAMPLES:
            return (
                f"inversion needs users of at most {MAX_SAMPLES} samples, and one has {most}: "
                "deal few, as by learning.partition: {few: 1}"
            )
        return None

    def __call__(self, view: View, truth: Truth, rng: np.random.Generator) -> Outcome:
        first = len(view.rounds) - 1 if view.plain else window(view, self.rounds)
        sums, estimates = truth.first(first), estimated(view, first)
        held = np.array([len(part) > 0 for part in truth.parts])
        chosen = np.flatnonzero(held & np.isfinite(estimates).all(axis=1)).tolist()[: self.users]
        if not chosen:
            raise BadInput(f"{view.entry}: no user with samples took part in the rounds that are attacked")
        known = {user: (estimates[user].astype(np.float32), first) for user in chosen}
        true = {user: sums[user] for user in chosen}
        if view.plain:
            known = {user: up for user, up in view.uploads(first).items() if user in chosen}
            true = {user: delta.astype(np.float64) for user, (delta, _) in known.items()}
        error = [errors(true[user][None], known[user][0][None].astype(np.float64)) for user in chosen]
        originals = {user: pixels(truth.split.x_train[truth.parts[user]]) for user in chosen}
        labels = {user: truth.split.y_train[truth.parts[user]] for user in chosen}
        images = {
            user: _matched(x, originals[user]) for user, x in self._searched(view, rng, known, labels).items()
        }
        scores = {user: _scores(images[user], originals[user]) for user in chosen}
        blind = [_scores(_typical(truth.split, labels[user]), originals[user])[0] for user in chosen]
        means = dict(
            zip(("psnr", "mse", "ssim"), np.mean(list(scores.values()), axis=0).tolist(), strict=True)
        )
        numbers = {"rounds": float(len(view.rounds) - first), "users": float(len(chosen))}
        numbers |= {"error": float(np.mean(error)), **means, "blind": float(np.mean(blind))}
        finding = Finding(view.entry, "uploads" if view.plain else "sums", numbers)
        captions = tuple(f"{scores[user][0]:.1f} dB" for user in chosen)
        names = tuple(f"user {user}" for user in chosen)
        title = f"{view.entry}: mean PSNR {means['psnr']:.1f} dB"
        strips = (
            *strips_of("an original of each", [originals[u][0] for u in chosen], names),
            *strips_of(title, [images[u][0] for u in chosen], captions),
        )
        return Outcome((finding,), strips)

    def _searched(
        self, view: View, rng: np.random.Generator, known: dict[int, tuple[F32, int]], labels: dict[int, I64]
    ) -> dict[int, F32]:
        """Return each user's images [n, *shape]: those of the start that ends with the least cost."""
        found: dict[int, F32] = {}
        shapes = {user: (place, len(labels[user])) for user, (_, place) in known.items()}
        for place, n in sorted(set(shapes.values())):  # those of one shape are searched together
            group = [user for user in known if shapes[user] == (place, n)]
            starts = rng.random((len(group), self.starts, n, *view.shape), np.float32)
            each = [user for user in group for _ in range(self.starts)]
            x, cost = view.search.explaining(
                view.models[place],
                np.stack([known[user][0] for user in each]),
                np.stack([labels[user] for user in each]),
                starts.reshape(-1, n, *view.shape),
                self.steps,
                self.lr,
                self.variation,
            )
            least = cost.reshape(len(group), -1).argmin(axis=1)
            best = x.reshape(starts.shape)[np.arange(len(group)), least]
            found |= dict(zip(group, best, strict=True))
        return {user: found[user] for user in known}


def _scores(images: F32, originals: F32) -> tuple[float, float, float]:
    """Return the mean PSNR, MSE and SSIM (NaN of what are no images) of a user's images."""
    ssims = [ssim(*pair) for pair in zip(images, originals, strict=True)] if images.ndim > 2 else [np.nan]
    pairs = list(zip(images, originals, strict=True))
    dB, squares = (float(np.mean([measure(*pair) for pair in pairs])) for measure in (psnr, mse))
    return dB, squares, float(np.mean(ssims))


def _matched(images: F32, originals: F32) -> F32:
    """Return a user's images in the order of its originals that are nearest: gradients have no order."""
    from scipy.optimize import linear_sum_assignment

    costs = np.square(images[:, None] - originals[None]).reshape(len(images), len(originals), -1).sum(axis=2)
    nearest: F32 = images[linear_sum_assignment(costs.T)[1]]
    return nearest


def _typical(split: Split, labels: I64) -> F32:
    """Return the mean of the test images of each label, or of all where none has it."""
    of_label = [np.flatnonzero(split.y_test == label) for label in labels]
    everything = np.arange(len(split.y_test))
    return np.stack([pixels(split.x_test[r if len(r) else everything]).mean(axis=0) for r in of_label])
