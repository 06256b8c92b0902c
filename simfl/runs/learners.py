"""From a scenario's `learning` to trainers: data dealt out, model, local SGD."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

from simfl.errors import counted
from simfl.learning.losses import CrossEntropy
from simfl.learning.models.facts import facts, law_name
from simfl.learning.sgd import LocalSgd
from simfl.learning.trainer import Trainer, pick_device
from simfl.random_streams import Streams
from simfl.scenario.messages import with_location
from simfl.scenario.schema import Scenario
from simfl.scenario.world import Measured, Modelled
from simfl.world.profiles import Profile


def make_trainers(
    s: Scenario, streams: Streams, profile: Profile, tell: Callable[[str], None]
) -> dict[str, Trainer]:
    """Return each entry's trainer: the data dealt out, and the model. Entries of one partition share it."""
    spec = s.learning
    if spec.flower is not None:
        from simfl.learning.flower_trainer import FlowerTrainer

        tell("making Flower's clients")
        make_it = partial(FlowerTrainer, spec.flower, s.population.users, tell)
        return dict.fromkeys(s.protocols, with_location(s, "learning.flower", make_it))
    tell(f"reading the data set {spec.dataset.kind}")
    root = None if spec.data.root is None else Path(spec.data.root)
    split = with_location(s, "learning.dataset", partial(spec.dataset.loaded, streams.rng("data"), root))
    tell("finding out about the model")
    known = with_location(
        s, "learning.model", partial(facts, spec.model, split.shape, split.classes, split.tokens)
    )
    if spec.device == "cuda":  # torch is imported to look for a GPU if one is asked for
        with_location(s, "learning.device", partial(pick_device, spec.device))
    law = profile.law(law_name(spec.model, known), split.shape, spec.batch_size)
    by_law = isinstance(s.clock, Modelled) and law is not None
    softmax = known.softmax and isinstance(spec.loss, CrossEntropy)
    # Under the measured clock each client is trained alone, as on its own device.
    together = spec.way == "vectorised" or (spec.way == "auto" and not softmax)
    way = "loop" if isinstance(s.clock, Measured) and together else spec.way
    tell(f"dealing the samples to {counted(s.population.users, 'user')}")
    decay = (spec.lr_decay.factor, spec.lr_decay.at) if spec.lr_decay else (1.0, ())
    sgd = LocalSgd(spec.epochs, spec.batch_size, spec.lr, spec.momentum, spec.weight_decay, spec.mu, *decay)
    made: dict[str, Trainer] = {}
    for name in s.protocols:
        dealt = s.of(name).learning.partition
        key = dealt.model_dump_json()
        if key not in made:
            deal = partial(dealt.dealt, split, s.population.users, streams.rng("partition"))
            parts = with_location(s, "learning.partition", deal)
            make = partial(
                Trainer, split, parts, spec.model, sgd, spec.device, way,
                by_law=by_law, deterministic=spec.deterministic, loss=spec.loss,
            )  # fmt: skip
            made[key] = with_location(s, "learning.way", make)
    return {name: made[s.of(name).learning.partition.model_dump_json()] for name in s.protocols}
