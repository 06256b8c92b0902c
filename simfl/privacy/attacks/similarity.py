"""Similarity of an image to the original, in numbers: MSE, PSNR, SSIM and correlation of pixels 0 .. 1."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from simfl.learning.data.dataset import F32

WINDOW = 7  # pixels of a side: as scikit-image has it unless told otherwise


def mse(image: F32, original: F32) -> float:
    """Return the mean squared difference of pixels."""
    return float(np.square(image.astype(np.float64) - original).mean())


def psnr(image: F32, original: F32) -> float:
    """Return 10 log10(1 / MSE) in dB; infinite where the two are the same.

    >>> psnr(np.full((2, 2), 0.5), np.full((2, 2), 0.6))
    20.0
    """
    error = mse(image, original)
    return round(float(-10 * np.log10(error)), 12) if error else np.inf


def correlation(image: F32, original: F32) -> float:
    """Return Pearson's correlation of pixels, which heeds neither brightness nor contrast; 0 of a flat one.

    >>> correlation(np.array([[0.0, 0.5]]), np.array([[0.2, 0.4]]))
    1.0
    """
    one, other = (x.astype(np.float64).ravel() - x.mean(dtype=np.float64) for x in (image, original))
    size = float(np.linalg.norm(one) * np.linalg.norm(other))
    return round(float(one @ other) / size, 12) if size else 0.0


def ssim(image: F32, original: F32) -> float:
    """Return the structural similarity (Wang et al. 2004, eq. 13), the mean over windows of the index of
    luminance, contrast and structure: 1 where the two are the same, about 0 where nothing is common.

    image, original: [..., h, w], with h, w >= 2; channels count alike. Windows are square and uniform, of
    `WINDOW` pixels or of the smaller side, with unbiased variances.
    """
    side = min(WINDOW, *image.shape[-2:])
    one, other = (
        sliding_window_view(x.astype(np.float64), (side, side), (-2, -1)).reshape(-1, side**2)
        for x in (image, original)
    )
    mean, true_mean = one.mean(axis=1), other.mean(axis=1)
    about, true_about = one - mean[:, None], other - true_mean[:, None]
    n = side**2 - 1
    spread, true_spread = (about**2).sum(axis=1) / n, (true_about**2).sum(axis=1) / n
    common = (about * true_about).sum(axis=1) / n
    c1, c2 = 0.01**2, 0.03**2
    index = (2 * mean * true_mean + c1) * (2 * common + c2)
    index /= (mean**2 + true_mean**2 + c1) * (spread + true_spread + c2)
    return float(index.mean())
