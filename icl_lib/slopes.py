"""How much of the least squares slope an answer keeps: the effective slope, at any query and any V."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float64
from numpy.random import SeedSequence

from icl_lib.prompts import Prompts, sample_tasks

Answer = Callable[[Prompts], Float64[np.ndarray, "M"]]


def twin_contexts(pairs: int, n_context: int, V: float, *, seed: int | SeedSequence) -> Prompts:
    """Contexts of mean 0 and variance V in pairs that differ in the sign of C/V alone, 1 or −1.

    Args:
        pairs: number of pairs; context i + pairs is the twin of context i.
        n_context: N, at least 3.
        V: variance of each context's inputs, in units of x².
        seed: of the inputs, intercepts and noises, drawn as the paper draws them.

    Returns:
        2·pairs prompts, all with the query 0.

    Raises:
        ValueError: V is not a positive finite number, or a count is too small.
    """
    if not (np.isfinite(V) and V > 0):
        raise ValueError(f"V is {V}, expected a positive finite number")
    tasks = sample_tasks(pairs, n_context, seed=seed)
    drawn = tasks.prompts
    noise = drawn.y - tasks.intercept[:, None] - tasks.slope[:, None] * drawn.x
    x = drawn.x - drawn.x.mean(axis=1, keepdims=True)
    x *= np.sqrt(V) / x.std(axis=1, keepdims=True)
    noise -= (noise * x).mean(axis=1, keepdims=True) / V * x  # so that C/V is the slope, exactly
    y = [tasks.intercept[:, None] + slope * x + noise for slope in (1, -1)]
    return Prompts(np.tile(x, (2, 1)), np.concatenate(y), np.zeros(2 * pairs))


def at_queries(prompts: Prompts, queries: Float64[np.ndarray, "U"]) -> Prompts:
    """Every context with every query: all M contexts at queries[0], then all at queries[1], and so on."""
    x, y = (np.tile(values, (len(queries), 1)) for values in (prompts.x, prompts.y))
    return Prompts(x, y, np.repeat(queries, prompts.count))


def effective_slope(
    answer: Answer, twins: Prompts, queries: Float64[np.ndarray, "U"]
) -> Float64[np.ndarray, "U pairs"]:
    """[f(u) − f(−u)]/(2u·C/V), averaged over each pair of twins: 1 for least squares.

    What is even in u drops out, and so does a line in u that is the same for both twins.

    Args:
        answer: f, such as `Weights.predict`.
        twins: of `twin_contexts`.
        queries: u > 0, in units of x.
    """
    f = answer(at_queries(twins, np.concatenate([queries, -queries])))
    f = f.reshape(2, len(queries), twins.count)
    m = twins.moments()
    s = (f[0] - f[1]) / (2 * queries[:, None] * m.C / m.V)
    return s.reshape(len(queries), 2, -1).mean(axis=1)
