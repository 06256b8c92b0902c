"""MSE, PSNR and SSIM against numbers by hand, and against the formula window by window."""

from __future__ import annotations

import numpy as np
import pytest

from simfl.privacy.attacks.similarity import correlation, mse, psnr, ssim


def test_psnr_by_hand() -> None:
    """One pixel of four off by 0.2: MSE 0.01, and 10 log10(1 / 0.01) = 20 dB."""
    original = np.zeros((2, 2), np.float32)
    image = np.array([[0.2, 0.0], [0.0, 0.0]], np.float32)
    assert mse(image, original) == pytest.approx(0.01, rel=1e-6)
    assert psnr(image, original) == pytest.approx(20, abs=1e-5)
    assert psnr(original, original) == np.inf


def test_ssim_of_one_window_by_hand() -> None:
    """x = (0, 1, 0, 1), y = (0, 1, 1, 0): means 1/2, variances 1/3, covariance 0."""
    x, y = np.array([[0.0, 1.0], [0.0, 1.0]]), np.array([[0.0, 1.0], [1.0, 0.0]])
    c2 = 0.03**2
    assert ssim(x, y) == pytest.approx(c2 / (2 / 3 + c2), rel=1e-9)
    assert ssim(x, x) == pytest.approx(1)


def test_ssim_window_by_window() -> None:
    rng = np.random.default_rng(3)
    x, y = rng.random((2, 9, 10))
    found = []
    for i in range(3):
        for j in range(4):
            a, b = x[i : i + 7, j : j + 7].ravel(), y[i : i + 7, j : j + 7].ravel()
            (va, c), (_, vb) = np.cov(a, b)
            up = (2 * a.mean() * b.mean() + 0.0001) * (2 * c + 0.0009)
            found.append(up / ((a.mean() ** 2 + b.mean() ** 2 + 0.0001) * (va + vb + 0.0009)))
    assert ssim(x, y) == pytest.approx(np.mean(found), rel=1e-9)
    assert ssim(x[None], y[None]) == pytest.approx(np.mean(found), rel=1e-9)


def test_correlation_as_numpys() -> None:
    x, y = np.random.default_rng(2).random((2, 5, 6))
    assert correlation(x, y) == pytest.approx(np.corrcoef(x.ravel(), y.ravel())[0, 1], abs=1e-9)
    assert correlation(x, np.zeros((5, 6))) == 0
