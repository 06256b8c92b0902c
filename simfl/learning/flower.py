"""A Flower app instead of a data set and a model: its keys in a scenario.

Its clients train, with their data and their code; `flower_trainer` calls them.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import BeforeValidator, Field

from simfl.config.blocks import Block, Count, Natural, Positive, Text
from simfl.config.texts import FileName

Whole = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Real = Annotated[float, Field(ge=-1e308, le=1e308, allow_inf_nan=False)]
Setting = bool | Whole | Real | Text


class Flower(Block):
    """A Flower app's clients: `path.py:client_fn`, or `path.py:app`, a `ClientApp` made of one.

    The file is Python and is executed.
    """

    opens: ClassVar[str] = "executes a Python file"

    module: FileName
    """`path.py:Name` of `client_fn` or of a `ClientApp`, from the scenario's folder."""
    initial_file: FileName | None = None
    """`path.py:Name` of a function that returns the first parameters; `get_parameters` unless given."""
    samples: Count | None = None
    """`num_examples` of each user's fit; unless given, each user is fitted once before the run to find it."""
    sample_s: Positive | None = None
    """Seconds of a fit for each of its `num_examples`; `clock: modelled` needs them."""
    config: dict[str, Setting] = {}
    """Passed to `fit` and `evaluate`, and as the context's `run_config`."""
    evaluated: Natural | None = None
    """Users, from 0 on, whose clients test the model; all unless given."""


def _by_name(value: Any) -> Any:
    return {"module": value} if isinstance(value, str) else value


AnyFlower = Annotated[Flower | None, BeforeValidator(_by_name, json_schema_input_type=Text | Flower | None)]
# In step with the keys of `scenario.schema.Learning`.
WITHOUT_EFFECT = (
    "dataset", "partition", "model", "loss", "epochs", "batch_size", "lr", "lr_decay", "momentum",
    "weight_decay", "mu", "device", "way", "deterministic", "partial",
)  # fmt: skip
"""Keys of `learning` that have no effect on Flower's clients."""
