"""Similarity of an image to the original, in numbers: MSE, PSNR, SSIM and correlation of pixels 0 .. 1."""

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from simfl.learning.data.dataset import F32

WINDOW = 7
"""Pixels of a window's side: scikit-image's default."""


def mse(image: F32, original: F32) -> float:
    """Return the mean squared difference of pixels."""
    return float(np.square(image.astype(np.float64) - original).mean())


def psnr(image: F32, original: F32) -> float:
    """Return 10 log10(1 / MSE) in dB; infinite if the images are equal.

    >>> psnr(np.full((2, 2), 0.5), np.full((2, 2), 0.6))
    20.0
    """
    error = mse(image, original)
    return round(float(-10 * np.log10(error)), 12) if error else np.inf


def correlation(image: F32, original: F32) -> float:
    """Return Pearson's correlation of pixels, which ignores brightness and contrast; 0 for a uniform image.

    >>> correlation(np.array([[0.0, 0.5]]), np.array([[0.2, 0.4]]))
    1.0
    """
    x, y = (pixels.astype(np.float64).ravel() - pixels.mean(dtype=np.float64) for pixels in (image, original))
    norms = float(np.linalg.norm(x) * np.linalg.norm(y))
    return round(float(x @ y) / norms, 12) if norms else 0.0


def ssim(image: F32, original: F32) -> float:
    """Return the structural similarity (Wang et al. 2004, eq. 13).

    It is the mean over windows of the index of luminance, contrast and structure: 1 for equal images, about 0
    for unrelated ones. Windows are square and uniform, of `WINDOW` pixels or of the smaller side, with
    unbiased variances; channels have equal weights.

    Args:
        image: Pixels, [..., h, w] with h, w >= 2.
        original: Pixels of the same shape.
    """
    # Images of 2 x 2 to 6 x 6 pixels have one smaller window.
    side = min(WINDOW, *image.shape[-2:])
    windows, true_windows = (
        sliding_window_view(x.astype(np.float64), (side, side), (-2, -1)).reshape(-1, side**2)
        for x in (image, original)
    )
    mean, true_mean = windows.mean(axis=1), true_windows.mean(axis=1)
    about, true_about = windows - mean[:, None], true_windows - true_mean[:, None]
    # Unbiased, as scikit-image computes it by default.
    n = side**2 - 1
    spread, true_spread = (about**2).sum(axis=1) / n, (true_about**2).sum(axis=1) / n
    common = (about * true_about).sum(axis=1) / n
    # K_1 and K_2 of the paper, for pixels of 0 .. 1. They keep flat windows from dividing zero by zero.
    c1, c2 = 0.01**2, 0.03**2
    index = (2 * mean * true_mean + c1) * (2 * common + c2)
    index /= (mean**2 + true_mean**2 + c1) * (spread + true_spread + c2)
    return float(index.mean())
