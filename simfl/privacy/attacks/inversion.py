"""Images from users' updates, by gradient inversion (Geiping et al. 2020; Multi-RoundSecAgg Figs 1 and 9).

The search is for images with a gradient in the update's direction. The order of a batch is lost in its
gradient, so images are matched with the nearest originals before they are scored.
"""

import math
from typing import Any, Literal

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
from simfl.privacy.attacks.least_squares import window
from simfl.privacy.attacks.similarity import mse, psnr, ssim
from simfl.privacy.least_squares import errors, estimated

MAX_SAMPLES = 8
"""Samples of a user: of more, neither this search nor the paper's finds single images."""

Updates = dict[int, tuple[F32, int]]
"""By user, an update, [d], and the index of the model that it was made on."""


class Inversion(Attack):
    """Users' images from the updates that least squares finds, by descent on the cosine of gradients.

    Updates that the server sees user by user are inverted directly. Where it sees sums alone, the updates are
    estimated from the sums of many rounds first. A curious user, who sees the global models alone, inverts
    their mean step.
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
    """Searches of a user, each from other noise; the one of minimum cost counts."""
    rounds: Count | None = None
    """Number of rounds, the last ones, that are attacked; 2 N unless given."""

    def problem(self, split: Split, parts: list[I64]) -> str | None:
        max_samples = max(map(len, parts))
        if max_samples > MAX_SAMPLES:
            return (
                f"inversion needs users of at most {MAX_SAMPLES} samples, and one has {max_samples}: "
                "deal few, as by learning.partition: {few: 1}"
            )
        return None

    def __call__(self, view: View, truth: Truth, rng: np.random.Generator) -> Outcome:
        begin = window(view, self.rounds)
        # Plain updates need no window: the last round's are read directly.
        first = len(view.rounds) - 1 if view.plain else begin
        true_updates, estimates = truth.first(first), estimated(view.weights[first:], view.totals[first:])
        # A user without samples has no image to be found.
        has_samples = np.array([len(part) > 0 for part in truth.parts])
        # A user outside of the window has an estimate of NaN.
        chosen = np.flatnonzero(has_samples & np.isfinite(estimates).all(axis=1)).tolist()[: self.users]
        if not chosen:
            raise BadInput(f"{view.entry}: no user with samples took part in the rounds that are attacked")
        # The estimates are of each user's first update in the window, so the model is the window's first.
        updates = {user: (estimates[user].astype(np.float32), first) for user in chosen}
        true = {user: true_updates[user] for user in chosen}
        if view.plain:
            updates = {user: up for user, up in view.uploads(first).items() if user in chosen}
            # An upload may have its user's noise, and the error is against the update without it.
            true = {user: delta / view.weights[first, user] for user, delta in true.items()}
        error = [errors(true[user][None], updates[user][0][None].astype(np.float64)) for user in chosen]
        originals = {user: pixels(truth.split.x_train[truth.parts[user]]) for user in chosen}
        labels = {user: truth.split.y_train[truth.parts[user]] for user in chosen}
        # The score without any attack: an attack that is not better has found nothing.
        blind = [_scores(_typical(truth.split, labels[user]), originals[user])[0] for user in chosen]

        def found(attacked: str, updates: Updates, first: int, error: float) -> tuple[Any, ...]:
            # Matched by the truth, which flatters the attack: it is scored for its images, and not for their
            # order.
            searched = self._searched(view, rng, updates, labels)
            images = {user: _matched(x, originals[user]) for user, x in searched.items()}
            scores = {user: _scores(images[user], originals[user]) for user in chosen}
            means = np.mean(list(scores.values()), axis=0).tolist()
            numbers = {"rounds": float(len(view.rounds) - first), "users": float(len(chosen)), "error": error}
            numbers |= dict(zip(("psnr", "mse", "ssim"), means, strict=True), blind=float(np.mean(blind)))
            numbers |= {k: x for k, x in view.promise(attacked == "uploads").items() if k == "epsilon"}
            return Finding(view.entry, attacked, numbers), images, scores

        attacked, mean_error = "uploads" if view.plain else "sums", float(np.mean(error))
        finding, images, scores = found(attacked, updates, first, mean_error)
        # A curious user has the global models alone: without the users of a sum, the mean step of all rounds
        # is its best guess of each user's update, but for its length.
        step = (view.models[begin] - view.models[-1], begin)
        curious, *_ = found("all global models", dict.fromkeys(chosen, step), begin, math.nan)
        captions = tuple(f"{scores[user][0]:.1f} dB" for user in chosen)
        names = tuple(f"user {user}" for user in chosen)
        title = f"{view.entry}: mean PSNR {finding.numbers['psnr']:.1f} dB"
        strips = (
            *strips_of("an original of each", [originals[u][0] for u in chosen], names),
            *strips_of(title, [images[u][0] for u in chosen], captions),
        )
        return Outcome((finding, curious), strips)

    def _searched(
        self, view: View, rng: np.random.Generator, updates: Updates, labels: dict[int, I64]
    ) -> dict[int, F32]:
        """Return each user's images [n, *shape], of the start that ends with the minimum cost."""
        best_of: dict[int, F32] = {}
        batches = {user: (model, len(labels[user])) for user, (_, model) in updates.items()}
        # Users with the same model and number of samples are searched as one batch.
        # Sorted, so that the draws of the starts do not depend on the order of a set.
        for model, n in sorted(set(batches.values())):
            group = [user for user in updates if batches[user] == (model, n)]
            starts = rng.random((len(group), self.starts, n, *view.shape), np.float32)
            users = [user for user in group for _ in range(self.starts)]
            x, cost = view.search.explaining(
                view.models[model],
                np.stack([updates[user][0] for user in users]),
                np.stack([labels[user] for user in users]),
                starts.reshape(-1, n, *view.shape),
                self.steps,
                self.lr,
                self.variation,
            )
            # By cost, which the server can compute; by likeness to the originals it could not choose.
            least = cost.reshape(len(group), -1).argmin(axis=1)
            best = x.reshape(starts.shape)[np.arange(len(group)), least]
            best_of |= dict(zip(group, best, strict=True))
        # In the order of `updates`, and not of the groups.
        return {user: best_of[user] for user in updates}


def _scores(images: F32, originals: F32) -> tuple[float, float, float]:
    """Return the mean PSNR, MSE and SSIM of a user's images; SSIM is NaN for samples that are not images."""
    ssims = [ssim(*pair) for pair in zip(images, originals, strict=True)] if images.ndim > 2 else [np.nan]
    pairs = list(zip(images, originals, strict=True))
    dB, squares = (float(np.mean([measure(*pair) for pair in pairs])) for measure in (psnr, mse))
    return dB, squares, float(np.mean(ssims))


def _matched(images: F32, originals: F32) -> F32:
    """Return a user's images in the order of the nearest originals: a gradient has no order of samples."""
    from scipy.optimize import linear_sum_assignment

    costs = np.square(images[:, None] - originals[None]).reshape(len(images), len(originals), -1).sum(axis=2)
    # Each image is matched once: the nearest original for each alone might be the same one twice.
    nearest: F32 = images[linear_sum_assignment(costs.T)[1]]
    return nearest


def _typical(split: Split, labels: I64) -> F32:
    """Return the mean test image of each label; of all test images for a label without one."""
    of_label = [np.flatnonzero(split.y_test == label) for label in labels]
    all_rows = np.arange(len(split.y_test))
    return np.stack([pixels(split.x_test[r if len(r) else all_rows]).mean(axis=0) for r in of_label])
