"""Random numbers for the tests, and what counts as equal to rounding."""

from typing import Any

import numpy as np
from hypothesis import strategies as st

seeds = st.integers(0, 2**32)


def generator(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def close(actual: Any, expected: Any, tolerance: float) -> None:
    """Finite, and each number equal within the tolerance, relative to 1 + its size."""
    assert np.isfinite(actual).all()
    assert (np.abs(actual - expected) <= tolerance * (1 + np.abs(expected))).all()


def close_overall(actual: Any, expected: Any, tolerance: float = 1e-11) -> None:
    """Equal to rounding, relative to the largest expected number: cancellation costs digits there."""
    assert np.abs(actual - expected).max() <= tolerance * (1 + np.abs(expected).max())
