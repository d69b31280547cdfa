"""From a program's line to a layer: where things live, how numbers pass the nonlinearities, the weights.

For the nonlinearities there are two answers with one interface: `Published`, the lemmas of Akyürek et al.
(2022), appendix C.4.2, each with a large constant; and `Refined`, ours, on the same layer. `sharpness` is
N_s, the logit that stands for certainty.

- `pads` writes known numbers into rows P and Q of the residual stream after attention, z, so that layer norm
  divides by a constant or by |h_i[divisor]|. G acts on h_i; `others` are the matrices of other heads.
- `linear`, `quotient` and `product` give units of the MLP that add up to v·z, to v·z/|divisor| (behind pads
  made for a divisor) and to (v·z)(w·z).
- `affine_in_attention` says that W_F makes sums, so that they meet no nonlinearity; else the MLP does.

A *functional* is a vector v (H,) that stands for the number v·z; a *unit* is a row of W_1 and a factor for
W_2. GeLU here is x·Φ(x), with Φ the normal distribution function.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float64

from icl_lib.decoder import DecoderLayer, LayerShape

Functional = Float64[np.ndarray, "H"]
Matrix = Float64[np.ndarray, "H H"]
Reads = Sequence[set[int]]  # the timestep map: for each column i the columns K(i) that it averages


class Unit(NamedTuple):
    """factor · GeLU(row · λ(z))."""

    row: Functional
    factor: float


@dataclass(frozen=True)
class Space:
    """The rows of a hidden column: data | scratch | P, Q | a zero | a one | the position as a one-hot code.

    Args:
        data: rows of the program.
        scratch: rows for copies of operands that a line overwrites.
        columns: T.
    """

    data: int
    scratch: int
    columns: int

    @property
    def P(self) -> int:
        """The first pad."""
        return self.data + self.scratch

    @property
    def Q(self) -> int:
        """The second pad."""
        return self.P + 1

    @property
    def zero(self) -> int:
        """A row that is never written."""
        return self.P + 2

    @property
    def one(self) -> int:
        """A row that holds 1."""
        return self.P + 3

    def position(self, column: int) -> int:
        """The row that holds 1 in this column only."""
        return self.P + 4 + column

    @property
    def width(self) -> int:
        """H."""
        return self.P + 4 + self.columns

    def row(self, index: int) -> Functional:
        """The functional that reads one row."""
        functional = np.zeros(self.width)
        functional[index] = 1.0
        return functional


@dataclass(frozen=True)
class Published:
    """Lemmas 4, 5, 6 and 8 as we read them.

    Lemma 6: pads N and −N − Σz make √(2/H)·N·λ(z) ≈ z, to relative order Σz/(2N). Lemma 8: the same with N
    times the divisor. Lemma 5: GeLU(M + v) − GeLU(M) ≈ v for large M. Lemma 4: √(π/2)·c²·(GeLU((v + w)/c) −
    GeLU(v/c) − GeLU(w/c)) ≈ vw for large c.
    """

    N: float = 1e9
    M: float = 32.0
    c: float = 2.0**14
    sharpness: float = 1e4
    affine_in_attention: bool = False

    def pads(
        self, space: Space, G: Matrix, others: tuple[Matrix, ...] = (), divisor: int | None = None
    ) -> None:
        """P = N·divisor, Q = −P − Σ of all other rows, so that the mean is 0."""
        pads = [space.P, space.Q]
        reference = self.N * space.row(space.one if divisor is None else divisor)
        for matrix in (G, *others):
            matrix[pads] = 0.0
            matrix[space.Q] = -matrix.sum(axis=0)
        G[space.P] = reference
        G[space.Q] -= reference

    def _bypass(self, space: Space, v: Functional) -> Functional:
        return np.sqrt(2 / space.width) * self.N * v

    def _shift(self, space: Space) -> Functional:
        return np.sqrt(2 / space.width) * self.M / 2 * (space.row(space.P) - space.row(space.Q))

    def linear(self, space: Space, v: Functional) -> list[Unit]:
        """Two units, Lemma 5."""
        shift = self._shift(space)
        return [Unit(self._bypass(space, v) + shift, 1.0), Unit(shift, -1.0)]

    def quotient(self, space: Space, v: Functional) -> list[Unit]:
        """Four units: the shift carries the divisor's sign, and only one pair is on."""
        v, shift = self._bypass(space, v), self._shift(space)
        return [Unit(v + shift, 1.0), Unit(shift, -1.0), Unit(v - shift, 1.0), Unit(-shift, -1.0)]

    def product(self, space: Space, v: Functional, w: Functional) -> list[Unit]:
        """Three units, Lemma 4."""
        v, w = self._bypass(space, v) / self.c, self._bypass(space, w) / self.c
        factor = np.sqrt(np.pi / 2) * self.c**2
        return [Unit(v + w, factor), Unit(v, -factor), Unit(w, -factor)]


def richardson(levels: int) -> Float64[np.ndarray, "R"]:
    """Weights ω of values with errors a₁/c² + a₂/c⁴ + … at c, 2c, 4c, …: Σω = 1, and R − 1 terms cancel."""
    k = np.arange(levels)
    return np.linalg.solve(4.0 ** -np.outer(k, k), np.eye(levels)[0])


@dataclass(frozen=True)
class Refined:
    """The same layer with better weights.

    Pads N and −N need no balance when a row is read against the zero row: the mean of z cancels in λ_x − λ_0,
    and the error is of relative order 1/N². GeLU(v) − GeLU(−v) = v exactly. With E(v) = GeLU(v) + GeLU(−v),
    an even function, √(π/2)·(c²/4)·(E((v + w)/c) − E((v − w)/c)) = vw + a₁/c² + a₂/c⁴ + …, and `levels` = R
    scales c, 2c, … cancel the first R − 1 terms.
    """

    N: float = 2.0**40
    c: float = 128.0
    levels: int = 4
    sharpness: float = 1e4
    affine_in_attention: bool = True

    def pads(
        self, space: Space, G: Matrix, others: tuple[Matrix, ...] = (), divisor: int | None = None
    ) -> None:
        """P = N·divisor, Q = −P."""
        pads = [space.P, space.Q]
        for matrix in (G, *others):
            matrix[pads] = 0.0
        G[space.P] = self.N * space.row(space.one if divisor is None else divisor)
        G[space.Q] = -G[space.P]

    def _bypass(self, space: Space, v: Functional) -> Functional:
        return np.sqrt(2 / space.width) * self.N * (v - v.sum() * space.row(space.zero))

    def linear(self, space: Space, v: Functional) -> list[Unit]:
        """Two units, without a constant."""
        v = self._bypass(space, v)
        return [Unit(v, 1.0), Unit(-v, -1.0)]

    quotient = linear

    def product(self, space: Space, v: Functional, w: Functional) -> list[Unit]:
        """4R units."""
        v, w = self._bypass(space, v), self._bypass(space, w)
        units = []
        for k, weight in enumerate(richardson(self.levels)):
            c = 2.0**k * self.c
            factor = weight * np.sqrt(np.pi / 2) * c**2 / 4
            units += [Unit(s * (v + w) / c, factor) for s in (1, -1)]
            units += [Unit(s * (v - w) / c, -factor) for s in (1, -1)]
        return units


REFINED = Refined()
Tricks = Published | Refined


# -- the layer --------------------------------------------------------------------------------------------


class Attention(NamedTuple):
    """One head: what each column averages, and the matrix that puts the average into it."""

    reads: Reads
    W: Float64[np.ndarray, "H H"]


def own(space: Space, G: Float64[np.ndarray, "H H"]) -> Attention:
    """The head that reads its own column and replaces it by G h_i."""
    return Attention([{i} for i in range(space.columns)], G - np.eye(space.width))


def build(
    space: Space,
    tricks: Tricks,
    heads: Sequence[Attention],
    units: Sequence[tuple[Unit, np.ndarray]] = (),
    dtype: torch.dtype = torch.float64,
) -> DecoderLayer:
    """The layer z_i = h_i + Σ_heads W mean_{K(i)} h, h'_i = z_i + Σ_units target·factor·GeLU(row·λ(z_i)).

    The softmax gives a column of K(i) the logit N_s, any other −N_s, and the null slot 0.

    Raises:
        ValueError: K(i) holds a column after i.
    """
    T, H = space.columns, space.width
    shape = LayerShape(H, len(heads), H, T + 1, len(units), null_slot=True, eps=0.0)
    layer = DecoderLayer(shape, dtype)
    weights = {name: np.zeros(p.shape) for name, p in layer.named_parameters()}
    for j, (reads, W) in enumerate(heads):
        for i, columns in enumerate(reads):
            if late := [k for k in columns if k > i]:
                raise ValueError(f"column {i} is to read column {late[0]}: a decoder reads no later column")
            weights["W_Q"][j, list(columns), space.position(i)] = 2 * tricks.sharpness
        weights["W_Q"][j, T, space.one] = -tricks.sharpness
        weights["W_K"][j, range(T), [space.position(k) for k in range(T)]] = 1.0
        weights["W_K"][j, T, space.one] = 1.0
        weights["W_V"][j] = np.eye(H)
        weights["W_F"][:, j * H : (j + 1) * H] = W
    for u, (unit, target) in enumerate(units):
        weights["W_1"][u], weights["W_2"][:, u] = unit.row, unit.factor * target
    for name, parameter in layer.named_parameters():
        parameter.data = torch.from_numpy(weights[name]).to(dtype)
    return layer
