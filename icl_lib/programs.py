"""Two learners as programs for a decoder, after Akyürek et al. (2022), appendices A and B, corrected.

The hidden matrix has the columns (0; x_1), (y_1; 0), …, (0; x_q) of their eq. (12): T = 2n + 1. Row 0 is y,
rows 1 … d are x, and the rest is work space.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from jaxtyping import Float64

from icl_lib.compiler import REFINED, Space, Tricks
from icl_lib.decoder import Decoder
from icl_lib.primitives import Aff, Div, Hidden, Line, Mov, Mul

NONE = range(0)


@dataclass(frozen=True)
class Program:
    """Lines, and what they work on.

    Args:
        lines: what to do, in order.
        features: d + 1, rows of the input.
        rows: p, rows that the lines use.
        columns: T.
        output: the row that holds the answer, in the last column.
    """

    lines: tuple[Line, ...]
    features: int
    rows: int
    columns: int
    output: int

    @property
    def space(self) -> Space:
        """The least hidden column in which the program runs."""
        return Space(self.rows, max(line.scratch for line in self.lines), self.columns)

    def execute(self, tokens: Hidden) -> list[np.ndarray]:
        """The hidden matrix (M, T, p) before the first line and after each, by exact operations."""
        h = np.zeros((*tokens.shape[:2], self.rows))
        h[:, :, : self.features] = tokens
        states = [h]
        for line in self.lines:
            states.append(line.apply(states[-1]))
        return states

    def compile(self, tricks: Tricks = REFINED, dtype: torch.dtype = torch.float64) -> Decoder:
        """A decoder with one layer a line; the answer is what it reads out of the last column."""
        space = self.space
        layers = [line.layer(space, tricks, dtype) for line in self.lines]
        decoder = Decoder(self.features, self.columns, layers)
        with torch.no_grad():
            decoder.W_e[range(self.features), range(self.features)] = 1.0
            decoder.positions[:, space.one] = 1.0
            decoder.positions[range(self.columns), [space.position(i) for i in range(self.columns)]] = 1.0
            decoder.w_out[self.output] = 1.0
        return decoder


def answer(decoder: Decoder, tokens: Hidden) -> Float64[np.ndarray, "M"]:
    """What a decoder reads out of the last column, computed in its own dtype."""
    with torch.no_grad():
        return decoder(torch.tensor(tokens, dtype=decoder.w_out.dtype))[:, -1].double().numpy()


def _rows(*sizes: int) -> list[range]:
    ends = np.cumsum([0, *sizes]).tolist()
    return [range(a, b) for a, b in pairwise(ends)]


def sgd(n: int, w: Sequence[float] | np.ndarray, rate: float, penalty: float) -> Program:
    """Theorem 1: one pass of stochastic gradient descent over n examples, then w·x_q; 7n + 2 lines.

    w ← w − 2α(x xᵀw − y x + λw), eq. (11), for one example after the other.

    Args:
        n: examples, at least 1.
        w: the start, (d,); it is written into the weights.
        rate: α.
        penalty: λ.
    """
    d = len(w)
    y, x, fit, residual, gradient, weight, sum_ = _rows(1, d, 1, 1, d, d, d)
    prediction = range(sum_.start, sum_.start + 1)
    lines: list[Line] = []
    for i in range(n):
        here, there = 2 * i, 2 * i + 1  # columns of x_i and of y_i
        lines.append(Mov(here, there, x, x, "move x to its y"))
        if i == 0:
            lines.append(Aff(x, NONE, fit, W_1=np.array([w]), note="wᵀx"))
        else:
            lines.append(Mov(there - 2, there, weight, weight, "move w on"))
            lines.append(Mul(1, d, 1, weight, x, fit, "wᵀx"))
        lines.append(Aff(fit, y, residual, W_2=-1.0, note="wᵀx − y"))
        lines.append(Mul(d, 1, 1, x, residual, gradient, "x(wᵀx − y)"))
        if i == 0:
            lines.append(Aff(NONE, NONE, weight, b=np.array(w), note="write w"))
        lines.append(Aff(gradient, weight, sum_, W_2=penalty, note="x(wᵀx − y) + λw"))
        lines.append(Aff(weight, sum_, weight, W_2=-2 * rate, note="w′"))
    lines.append(Mov(2 * n - 1, 2 * n, weight, weight, "move w′ to the query"))
    lines.append(Mul(1, d, 1, weight, x, prediction, "w′ᵀx_q"))
    return Program(tuple(lines), d + 1, sum_.stop, 2 * n + 1, prediction.start)


def sherman_morrison(n: int, d: int, penalty: float) -> Program:
    """Theorem 2: ridge regression by n rank-one updates of (XᵀX + λI)⁻¹, then w·x_q; 11n + 2 lines.

    A ← A − A x xᵀ A/(1 + xᵀA x) from A = I/λ, eqs (13)-(14), and b ← b + xy; the answer is (A b)·x_q.

    Args:
        n: examples, at least 1.
        d: numbers in an x.
        penalty: λ > 0.

    Raises:
        ValueError: λ is not positive.
    """
    if not penalty > 0:
        raise ValueError(f"penalty is {penalty}, expected a positive number: the first A is I/penalty")
    square = d * d
    sizes = 1, d, d, square, d, d, square, 1, square, d, 1
    y, x, b, A, Ax, xA, outer, s, ratio, weight, prediction = _rows(*sizes)
    lines: list[Line] = []
    for i in range(n):
        here, there = 2 * i, 2 * i + 1  # columns of x_i and of y_i
        lines.append(Mov(here, there, x, x, "move x to its y"))
        if i == 0:
            lines.append(Mul(d, 1, 1, x, y, b, "b = xy"))
            lines.append(Aff(NONE, NONE, A, b=np.eye(d).ravel() / penalty, note="A = I/λ"))
        else:
            kept = range(b.start, A.stop)
            lines.append(Mov(there - 2, there, kept, kept, "move b and A on"))
            lines.append(Mul(d, 1, 1, x, y, weight, "xy"))
            lines.append(Aff(b, weight, b, note="b + xy"))
        lines.append(Mul(d, d, 1, A, x, Ax, "A x"))
        lines.append(Mul(1, d, d, x, A, xA, "xᵀA"))
        lines.append(Mul(d, 1, d, Ax, xA, outer, "A x xᵀA"))
        lines.append(Mul(1, d, 1, xA, x, s, "xᵀA x"))
        lines.append(Aff(s, NONE, s, b=1.0, note="1 + xᵀA x"))
        lines.append(Div(outer, s.start, ratio, "A x xᵀA/(1 + xᵀA x)"))
        lines.append(Aff(A, ratio, A, W_2=-1.0, note="A′"))
    lines.append(Mul(d, d, 1, A, b, weight, "w′ = A′b"))
    lines.append(Mov(2 * n - 1, 2 * n, weight, weight, "move w′ to the query"))
    lines.append(Mul(1, d, 1, weight, x, prediction, "w′ᵀx_q"))
    return Program(tuple(lines), d + 1, prediction.stop, 2 * n + 1, prediction.start)
