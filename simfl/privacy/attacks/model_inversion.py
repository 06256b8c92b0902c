"""An image of a class from a user's model (Fredrikson et al. 2015; CCESA Fig. 2, section 5.3, App. B.2)."""

from typing import Literal

import numpy as np

from simfl.config.blocks import Count, Positive
from simfl.errors import BadInput
from simfl.learning.data.dataset import F32, I64, Split
from simfl.privacy.attacks.attack import (
    Attack,
    Finding,
    Knowledge,
    Outcome,
    Truth,
    View,
    as_images,
    pixels,
    strips_of,
)
from simfl.privacy.attacks.similarity import correlation, psnr, ssim


class ModelInversion(Attack):
    """An image of the class that a user holds most of, from the user's model as the server reads it.

    The global model, which the server has under every protocol, is searched for the same class too.
    """

    kind: Literal["model_inversion"] = "model_inversion"
    knowledge = Knowledge(
        "the class to look for: of each user the most frequent one",
        "means over the users attacked, and over a user's images of the class: psnr in dB, ssim, "
        "and corr, the correlation of pixels",
    )
    users: Count = 8
    """Users whose uploads are attacked: the first in the round."""
    steps: Count = 100
    """Steps of a search."""
    lr: Positive = 0.02
    """The largest step of a pixel."""

    def problem(self, split: Split, parts: list[I64]) -> str | None:
        if as_images(np.zeros((1, *split.shape), np.float32)) is None:
            return f"model_inversion needs images, and a sample has shape {list(split.shape)}"
        return None

    def __call__(self, view: View, truth: Truth, rng: np.random.Generator) -> Outcome:
        last = len(view.rounds) - 1
        uploads = {user: up for user, up in view.uploads(last).items() if len(truth.parts[user])}
        chosen = sorted(uploads)[: self.users]
        if not chosen:
            raise BadInput(f"{view.entry}: no user with samples took part in round {view.rounds[last]}")
        search, labels, originals = view.search, {}, {}
        for user in chosen:
            y = truth.split.y_train[truth.parts[user]]
            # `argmax` takes the lowest of equally frequent classes.
            labels[user] = int(np.bincount(y).argmax())
            # All of the user's images of that class: the search finds a typical one, and no certain one.
            originals[user] = pixels(truth.split.x_train[truth.parts[user][y == labels[user]]])
        # A user's model is the global model that it began with, less its update.
        user_models = {user: view.models[uploads[user][1]] - uploads[user][0] for user in chosen}
        if not view.plain:
            user_models = {user: _plausible(model, view.models[last]) for user, model in user_models.items()}
        read = "uploads" if view.plain else "masked uploads"
        targets = {read: user_models, "global model": dict.fromkeys(chosen, view.models[-1])}
        names = tuple(f"user {user}: class {labels[user]}" for user in chosen)
        strips = strips_of("an original of each", [originals[user][0] for user in chosen], names)
        findings = []
        for target, models in targets.items():
            images = [_stretched(search.of_class(models[u], labels[u], self.steps, self.lr)) for u in chosen]
            scores = [_likeness(x, originals[user]) for x, user in zip(images, chosen, strict=True)]
            means = dict(zip(("psnr", "ssim", "corr"), np.mean(scores, axis=0).tolist(), strict=True))
            numbers = {"round": float(view.rounds[last]), "users": float(len(chosen)), **means}
            findings.append(Finding(view.entry, target, numbers))
            captions = tuple(f"{dB:.1f} dB, {corr:.2f}" for dB, _, corr in scores)
            strips += strips_of(f"{view.entry}: {target}; PSNR and correlation", images, captions)
        return Outcome(tuple(findings), strips)


def _plausible(masked: F32, model: F32) -> F32:
    """Return a masked model, scaled to the norm of the global model.

    Unscaled, its logits are so large that the gradient vanishes: a search would end where it begins.
    """
    # Only the scale is changed, which the server can do with its data.
    return masked * np.float32(np.linalg.norm(model) / np.linalg.norm(masked))


def _stretched(image: F32) -> F32:
    """Return an image stretched to the full range of brightness: a search that ends early leaves it dark."""
    low, high = np.quantile(image, (0.01, 0.99))
    stretched: F32 = np.clip((image - low) / max(high - low, 1e-6), 0, 1).astype(np.float32)
    return stretched


def _likeness(image: F32, originals: F32) -> tuple[float, ...]:
    """Return the mean PSNR, SSIM and correlation to the originals.

    The maximum would be too high: among a hundred images, one resembles any noise.
    """
    measures = (psnr, ssim, correlation)
    return tuple(float(np.mean([measure(image, x) for x in originals])) for measure in measures)
