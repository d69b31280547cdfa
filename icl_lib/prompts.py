"""Draw regression tasks and lay them out as prompts (paper, section 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from jaxtyping import Float64
from numpy.random import PCG64, Generator, SeedSequence

Layout = Literal["paper", "query_channel", "mask", "relative"]
MIN_CONTEXT = 3  # two points fix a line exactly; a fit needs at least one more


def check_array(name: str, value: np.ndarray, shape: tuple[int | None, ...]) -> np.ndarray:
    """Return `value` as a read-only float64 array, or say what is wrong with it.

    Args:
        name: what to call the array in an error.
        value: anything NumPy can turn into numbers.
        shape: the expected shape; None stands for any length.

    Raises:
        ValueError: wrong shape, or an entry is NaN or infinite.
    """
    array = np.array(value, dtype=np.float64)
    expected = tuple("any" if s is None else s for s in shape)
    if array.ndim != len(shape) or any(s not in (None, a) for s, a in zip(shape, array.shape, strict=True)):
        raise ValueError(f"{name} has shape {array.shape}, expected {expected}")
    if not np.isfinite(array).all():
        first = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise ValueError(f"{name}{list(first)} is {array[first]}: every entry must be finite")
    array.flags.writeable = False
    return array


@dataclass(frozen=True, eq=False)
class Moments:
    """Sample moments of each prompt's context, eqs (4)-(7); each float64 of shape (M,).

    Units: `x_bar` those of x, `y_bar` of y, `V` of x², `C` of xy.
    """

    x_bar: Float64[np.ndarray, "M"]
    y_bar: Float64[np.ndarray, "M"]
    V: Float64[np.ndarray, "M"]
    C: Float64[np.ndarray, "M"]


@dataclass(frozen=True, eq=False)
class Prompts:
    """M regression data sets, each of N points and one query (paper, section 2.2).

    Args:
        x: inputs of the context, (M, N).
        y: outputs of the context, (M, N).
        query: the prediction point u of each prompt, (M,).

    Raises:
        ValueError: shapes disagree, N < 3, or an entry is not finite. V = 0 is accepted: a solver that
            divides by V refuses it.
    """

    x: Float64[np.ndarray, "M N"]
    y: Float64[np.ndarray, "M N"]
    query: Float64[np.ndarray, "M"]

    def __post_init__(self) -> None:
        x = check_array("x", self.x, (None, None))
        if x.shape[1] < MIN_CONTEXT:
            raise ValueError(f"x has N = {x.shape[1]} context points, expected at least {MIN_CONTEXT}")
        object.__setattr__(self, "x", x)
        object.__setattr__(self, "y", check_array("y", self.y, x.shape))
        object.__setattr__(self, "query", check_array("query", self.query, x.shape[:1]))

    @property
    def count(self) -> int:
        """M, the number of prompts."""
        return self.x.shape[0]

    @property
    def n_context(self) -> int:
        """N, the number of context points of each prompt."""
        return self.x.shape[1]

    def __getitem__(self, which: slice | np.ndarray) -> Prompts:
        """The prompts that a slice, an index array or a mask selects."""
        return Prompts(self.x[which], self.y[which], self.query[which])

    def tokens(self, layout: Layout = "paper") -> Float64[np.ndarray, "M S P"]:
        """The token matrix P of each prompt; its shape without M is `token_shape(layout, N)`.

        Args:
            layout: how a prompt is written down. "paper", eq. (1): rows (1, x_n, y_n), then (1, u, 0).
                "query_channel": rows (1, x_n, y_n, u) alone.
                "mask": rows (1, x_n, y_n, 1), then (1, u, 0, 0).
                "relative": rows (1, x_n - u, y_n), then (1, 0, 0).
        """
        rows = np.zeros((self.count, *token_shape(layout, self.n_context)))
        context = rows[:, : self.n_context]
        rows[:, :, 0], context[:, :, 1], context[:, :, 2] = 1.0, self.x, self.y
        if layout == "query_channel":
            rows[:, :, 3] = self.query[:, None]
        elif layout == "relative":
            context[:, :, 1] -= self.query[:, None]
        else:
            rows[:, -1, 1] = self.query
        if layout == "mask":
            context[:, :, 3] = 1.0
        return rows

    def moments(self) -> Moments:
        """Context means, variance and covariance, eqs (4)-(7)."""
        x_bar, y_bar = self.x.mean(axis=1), self.y.mean(axis=1)
        dx, dy = self.x - x_bar[:, None], self.y - y_bar[:, None]
        return Moments(x_bar, y_bar, (dx * dx).mean(axis=1), (dx * dy).mean(axis=1))


def token_shape(layout: Layout, n_context: int) -> tuple[int, int]:
    """Rows and features, (S, P), of a prompt of N points in this layout.

    Raises:
        ValueError: no such layout.
    """
    if layout not in get_args(Layout):
        raise ValueError(f"layout is {layout!r}, expected one of {', '.join(get_args(Layout))}")
    extra_row = layout != "query_channel"
    return n_context + extra_row, 4 if layout in ("query_channel", "mask") else 3


@dataclass(frozen=True, eq=False)
class Tasks:
    """Prompts with the lines behind them, y = θ0 + θ1 x + ε, eq. (2).

    `intercept` is θ0, `slope` θ1, `query_noise` the ε of an output observed at the query; each (M,), float64.
    """

    prompts: Prompts
    intercept: Float64[np.ndarray, "M"]
    slope: Float64[np.ndarray, "M"]
    query_noise: Float64[np.ndarray, "M"]

    def line(self) -> Float64[np.ndarray, "M"]:
        """θ0 + θ1 u: the noiseless value at the query."""
        return self.intercept + self.slope * self.prompts.query


def sample_tasks(
    count: int,
    n_context: int,
    *,
    seed: int | SeedSequence,
    noise_std: float = 0.2,
    query_std: float = 1.0,
    x_std: float = 1.0,
) -> Tasks:
    """Draw tasks as the paper does (section 4.1): x, u, θ0, θ1 ~ N(0, 1), ε ~ N(0, 0.04).

    Args:
        count: M, at least 1.
        n_context: N, at least 3.
        seed: an integer or a SeedSequence; the same seed gives the same bits. No global state is used.
        noise_std: σ of the noise, in units of y.
        query_std: standard deviation of the query, in units of x.
        x_std: standard deviation of the context inputs, in units of x.

    Raises:
        ValueError: a count is too small, or a standard deviation is negative or not finite.
    """
    if count < 1:
        raise ValueError(f"count is {count}, expected at least 1 prompt")
    if n_context < MIN_CONTEXT:
        raise ValueError(f"n_context is {n_context}, expected at least {MIN_CONTEXT}")
    for name, value in (("noise_std", noise_std), ("query_std", query_std), ("x_std", x_std)):
        if not (np.isfinite(value) and value >= 0):
            raise ValueError(f"{name} is {value}, expected a finite number that is not negative")
    root = seed if isinstance(seed, SeedSequence) else SeedSequence(seed)
    # Built anew rather than spawned: spawn() counts its calls, so a second draw would differ.
    children = [SeedSequence(root.entropy, spawn_key=(*root.spawn_key, i)) for i in range(4)]
    lines, inputs, noise, queries = (Generator(PCG64(child)) for child in children)
    theta = lines.standard_normal((2, count))
    x = x_std * inputs.standard_normal((count, n_context))
    # One more noise than there are context points: the last is that of an output seen at the query.
    eps = noise_std * noise.standard_normal((count, n_context + 1))
    query = query_std * queries.standard_normal(count)
    y = theta[0][:, None] + theta[1][:, None] * x + eps[:, :-1]
    return Tasks(Prompts(x, y, query), theta[0], theta[1], eps[:, -1])


def sample_prompts(
    count: int,
    n_context: int,
    *,
    seed: int | SeedSequence,
    noise_std: float = 0.2,
    query_std: float = 1.0,
    x_std: float = 1.0,
) -> Prompts:
    """The prompts of `sample_tasks`, for those who do not need the lines behind them."""
    return sample_tasks(
        count, n_context, seed=seed, noise_std=noise_std, query_std=query_std, x_std=x_std
    ).prompts
