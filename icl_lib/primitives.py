"""The primitives of Akyürek et al. (2022), section 3.1 and appendix C: RAW, mov, mul, div and aff as layers.

A primitive changes named rows of every column of the hidden matrix and leaves the others; each is one
`DecoderLayer`. Rows and columns count from 0 and ranges are half open, as in their listings. `Space` says
how a hidden column is divided.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float64

from icl_lib.compiler import Attention, Reads, Space, Tricks, Unit, build, own
from icl_lib.decoder import DecoderLayer

Rows = Sequence[int]
Hidden = Float64[np.ndarray, "M T p"]
Values = Float64[np.ndarray, "M T w"]


def raw(
    space: Space,
    tricks: Tricks,
    operation: str,
    reads: Reads,
    rows: tuple[Rows, Rows, Rows],
    W_a: Float64[np.ndarray, "d r"],
    W: Float64[np.ndarray, "d s"],
    W_o: Float64[np.ndarray, "w d"],
) -> DecoderLayer:
    """RAW (appendix C.2): h_i[w] ← W_o(W_a mean_{K(i)} h[r] ∘ W h_i[s]), where ∘ is + or × entry by entry.

    Args:
        space, tricks: where things live, and how the nonlinearities are met.
        operation: "+" or "×".
        reads: the timestep map K; an empty K(i) makes the first operand 0.
        rows: r, s and w.
        W_a, W, W_o: the three matrices.

    Raises:
        ValueError: another operation, or "×" in a space with fewer than 2d rows of scratch.
    """
    r, s, w = (list(part) for part in rows)
    F, G, d = np.zeros((space.width, space.width)), np.eye(space.width), len(W_a)
    G[w] = 0.0
    units: list[tuple[Unit, np.ndarray]] = []
    if operation == "+":
        F[np.ix_(w, r)] = W_o @ W_a
        G[np.ix_(w, s)] = W_o @ W
    elif operation == "×":
        if 2 * d > space.scratch:
            raise ValueError(f"{d} products need {2 * d} rows of scratch, the space has {space.scratch}")
        t, u = (list(range(space.data + k * d, space.data + (k + 1) * d)) for k in (0, 1))
        G[t + u] = 0.0
        F[np.ix_(t, r)], G[np.ix_(u, s)] = W_a, W
        for e in range(d):
            target = sum(W_o[i, e] * space.row(row) for i, row in enumerate(w))
            units += [(unit, target) for unit in tricks.product(space, space.row(t[e]), space.row(u[e]))]
        tricks.pads(space, G, (F,))
    else:
        raise ValueError(f"operation is {operation!r}, expected '+' or '×'")
    return build(space, tricks, [own(space, G), Attention(reads, F)], units)


class Line(ABC):
    """One line of a program: what it does in exact arithmetic, and the layer that does it."""

    target: range
    note: str

    @property
    @abstractmethod
    def operands(self) -> tuple[range, ...]:
        """The rows that its MLP reads."""

    @abstractmethod
    def values(self, h: Hidden) -> Values:
        """What the target rows hold afterwards: (M, T, rows of the target)."""

    @abstractmethod
    def layer(self, space: Space, tricks: Tricks, dtype: torch.dtype = torch.float64) -> DecoderLayer:
        """The decoder layer that does it."""

    def apply(self, h: Hidden) -> Hidden:
        """The hidden matrix afterwards."""
        after = h.copy()
        after[:, :, list(self.target)] = self.values(h)
        return after

    @property
    def scratch(self) -> int:
        """Rows needed for copies of the operands that it overwrites."""
        return sum(len(rows) for rows in self.operands if set(rows) & set(self.target))

    def _staged(self, space: Space) -> tuple[np.ndarray, list[list[int]]]:
        """G, which clears the target and first copies the operands there; where the operands are then."""
        G, free, places = np.eye(space.width), space.data, []
        for rows in self.operands:
            place = list(rows)
            if set(rows) & set(self.target):
                place = list(range(free, free + len(rows)))
                free += len(rows)
                G[place] = 0.0
                G[np.ix_(place, list(rows))] = np.eye(len(rows))
            places.append(place)
        G[list(self.target)] = 0.0
        return G, places

    def _listed(self, name: str, *arguments: int | range) -> str:
        """A line as the paper prints it."""
        spans = [f"({a.start}, {a.stop})" if isinstance(a, range) and a else a for a in arguments]
        return f"{name}(; " + ", ".join("()" if isinstance(a, range) else str(a) for a in spans) + ")"


def _sized(text: str, rows: range, expected: int) -> None:
    if len(rows) != expected:
        raise ValueError(f"{text} has {len(rows)} rows, expected {expected}")


@dataclass(frozen=True)
class Mov(Line):
    """mov: copy rows `source` of column s to rows `target` of column t ≥ s."""

    s: int
    t: int
    source: range
    target: range
    note: str = ""
    operands = ()

    def __post_init__(self) -> None:
        _sized("mov's target", self.target, len(self.source))

    def __str__(self) -> str:
        return self._listed("mov", self.s, self.t, self.source, self.target)

    def values(self, h: Hidden) -> Values:
        """The source in column t, the old numbers elsewhere."""
        after = h[:, :, list(self.target)].copy()
        after[:, self.t] = h[:, self.s, list(self.source)]
        return after

    def layer(self, space: Space, tricks: Tricks, dtype: torch.dtype = torch.float64) -> DecoderLayer:
        """Two heads: one takes away what column t has, one brings what column s has; no MLP."""
        erase, bring = np.zeros((2, space.width, space.width))
        erase[list(self.target), list(self.target)] = -1.0
        bring[list(self.target), list(self.source)] = 1.0
        heads = [
            Attention([{column} if i == self.t else set() for i in range(space.columns)], W)
            for column, W in ((self.t, erase), (self.s, bring))
        ]
        return build(space, tricks, heads, (), dtype)


@dataclass(frozen=True)
class Aff(Line):
    """aff: in each column, target ← W_1·first + W_2·second + b; a number W stands for W·I.

    Raises:
        ValueError: an operand or a matrix does not fit the target.
    """

    first: range
    second: range
    target: range
    W_1: float | np.ndarray = 1.0
    W_2: float | np.ndarray = 1.0
    b: float | np.ndarray = 0.0
    note: str = ""

    def __post_init__(self) -> None:
        for rows, W in ((self.first, self.W_1), (self.second, self.W_2)):
            if rows and np.ndim(W) == 0:
                _sized("aff's operand", rows, len(self.target))
            elif rows and np.shape(W) != (len(self.target), len(rows)):
                raise ValueError(f"matrix is {np.shape(W)}, expected {(len(self.target), len(rows))}")

    @property
    def operands(self) -> tuple[range, ...]:
        """Both."""
        return self.first, self.second

    def __str__(self) -> str:
        return self._listed("aff", self.first, self.second, self.target)

    def _matrices(self) -> list[np.ndarray]:
        size = len(self.target)
        pairs = ((self.W_1, self.first), (self.W_2, self.second))
        return [W * np.eye(size, len(rows)) if np.ndim(W) == 0 else np.asarray(W) for W, rows in pairs]

    def values(self, h: Hidden) -> Values:
        """W_1·first + W_2·second + b."""
        W_1, W_2 = self._matrices()
        return h[:, :, list(self.first)] @ W_1.T + h[:, :, list(self.second)] @ W_2.T + self.b

    def layer(self, space: Space, tricks: Tricks, dtype: torch.dtype = torch.float64) -> DecoderLayer:
        """One head that reads its own column; attention makes the sum, or (as published) the MLP does."""
        W_1, W_2 = self._matrices()
        b = np.broadcast_to(self.b, len(self.target))
        G, (first, second) = self._staged(space)
        functionals = b[:, None] * space.row(space.one)
        if tricks.affine_in_attention:
            functionals[:, list(self.first)] += W_1
            functionals[:, list(self.second)] += W_2
            G[list(self.target)] = functionals
            return build(space, tricks, [own(space, G)], (), dtype)
        functionals[:, first] += W_1
        functionals[:, second] += W_2
        tricks.pads(space, G)
        units = [
            (unit, space.row(row))
            for row, v in zip(self.target, functionals, strict=True)
            for unit in tricks.linear(space, v)
        ]
        return build(space, tricks, [own(space, G)], units, dtype)


@dataclass(frozen=True)
class Mul(Line):
    """mul: in each column, target ← A_1 A_2, `first` an a×b and `second` a b×c matrix, row by row."""

    a: int
    b: int
    c: int
    first: range
    second: range
    target: range
    note: str = ""

    def __post_init__(self) -> None:
        _sized("mul's first", self.first, self.a * self.b)
        _sized("mul's second", self.second, self.b * self.c)
        _sized("mul's target", self.target, self.a * self.c)

    @property
    def operands(self) -> tuple[range, ...]:
        """Both matrices."""
        return self.first, self.second

    def __str__(self) -> str:
        return self._listed("mul", self.a, self.b, self.c, self.first, self.second, self.target)

    def values(self, h: Hidden) -> Values:
        """The product of the two matrices of each column."""
        A_1 = h[:, :, list(self.first)].reshape(*h.shape[:2], self.a, self.b)
        A_2 = h[:, :, list(self.second)].reshape(*h.shape[:2], self.b, self.c)
        return (A_1 @ A_2).reshape(*h.shape[:2], self.a * self.c)

    def layer(self, space: Space, tricks: Tricks, dtype: torch.dtype = torch.float64) -> DecoderLayer:
        """One head that clears the target; a·b·c products in the MLP."""
        G, (first, second) = self._staged(space)
        tricks.pads(space, G)
        units = []
        for i, j, k in np.ndindex(self.a, self.b, self.c):
            factors = space.row(first[i * self.b + j]), space.row(second[j * self.c + k])
            target = space.row(self.target[i * self.c + k])
            units += [(unit, target) for unit in tricks.product(space, *factors)]
        return build(space, tricks, [own(space, G)], units, dtype)


@dataclass(frozen=True)
class Div(Line):
    """div: in each column, target ← source divided by the absolute value of row `divisor`."""

    source: range
    divisor: int
    target: range
    note: str = ""

    def __post_init__(self) -> None:
        _sized("div's target", self.target, len(self.source))

    @property
    def operands(self) -> tuple[range, ...]:
        """The numerators; the divisor goes through attention."""
        return (self.source,)

    def __str__(self) -> str:
        return self._listed("div", self.source, self.divisor, self.target)

    def values(self, h: Hidden) -> Values:
        """The quotients; inf or NaN where the divisor is 0."""
        with np.errstate(divide="ignore", invalid="ignore"):
            return h[:, :, list(self.source)] / np.abs(h[:, :, [self.divisor]])

    def layer(self, space: Space, tricks: Tricks, dtype: torch.dtype = torch.float64) -> DecoderLayer:
        """Layer norm divides: the pads are N times the divisor."""
        G, (source,) = self._staged(space)
        tricks.pads(space, G, divisor=self.divisor)
        units = []
        for place, row in zip(source, self.target, strict=True):
            units += [(unit, space.row(row)) for unit in tricks.quotient(space, space.row(place))]
        return build(space, tricks, [own(space, G)], units, dtype)
