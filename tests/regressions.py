"""Contexts for the programs and the decoders, and ridge regression without an inverse to compare with."""

from typing import Any

import numpy as np

from icl_lib.behaviour import interleaved
from tests.arrays import generator


def examples(seed: int, n: int, d: int, count: int = 8) -> tuple[Any, Any, Any]:
    """x, y and tokens of `count` contexts of n examples and a query; |x| ≤ 3, as the constants assume."""
    rng = generator(seed)
    x = np.clip(rng.standard_normal((count, n + 1, d)), -3, 3)
    y = np.einsum("mnd,md->mn", x, rng.standard_normal((count, d))) + 0.1 * rng.standard_normal(
        (count, n + 1)
    )
    return x, y, interleaved(x, y)


def ridge(x: Any, y: Any, penalty: float) -> Any:
    """Ridge regression as least squares on rows added to the data: no inverse, no normal equations."""
    d = x.shape[2]
    answered = []
    for X, Y in zip(x, y, strict=True):
        rows = np.vstack([X[:-1], np.sqrt(penalty) * np.eye(d)])
        answered.append(np.linalg.lstsq(rows, np.append(Y[:-1], np.zeros(d)))[0] @ X[-1])
    return np.array(answered)
