"""The shape of one sample, and what image models ask of it."""

from __future__ import annotations

Shape = tuple[int, ...]


def image(model: str, input_shape: Shape, least: int) -> tuple[int, int, int]:
    """(channels, height, width) of a sample. ValueError unless it has them and h, w >= least, in pixels."""
    if len(input_shape) != 3 or min(input_shape[1:]) < least:
        raise ValueError(f"{model} needs samples [c, h, w] with h, w >= {least}, not {list(input_shape)}")
    channels, height, width = input_shape
    return channels, height, width
