"""Fit linear-attention layers: one layer on the moments of its sums, stacks on the Gram matrices of prompts.

The weights see a prompt only through S = Σ z zᵀ over its rows z = (x, y) (`heads.recursion`), and the query
enters linearly, so it is integrated out. A target f counts through its best linear part v, E[x f(x)] = Σv:
for f(x) = w·x that is w. Every loss here is E|Σ^{1/2}(ŵ − v)|²: the squared error at the query without the
part that no linear answer can reach.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Float64
from scipy.optimize import minimize
from torch import Tensor

Arrays = dict[str, np.ndarray]
RESULTS = Path(__file__).parent.parent / "results"


def minimise(
    loss: Callable[[dict[str, Tensor]], Tensor], start: Mapping[str, np.ndarray], iterations: int
) -> tuple[Arrays, float]:
    """Minimise a PyTorch loss of named float64 arrays by L-BFGS, in one thread so that the bits repeat.

    Returns the arrays and the loss there. Another processor's matrix products may round otherwise.
    """
    names, shapes = list(start), [np.shape(value) for value in start.values()]
    ends = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]

    def unpack(flat: np.ndarray) -> Arrays:
        parts = np.split(flat, ends)
        return {n: part.reshape(shape) for n, part, shape in zip(names, parts, shapes, strict=True)}

    def value(flat: np.ndarray) -> tuple[float, np.ndarray]:
        tensors = {n: torch.tensor(part, requires_grad=True) for n, part in unpack(flat).items()}
        result = loss(tensors)
        result.backward()
        return result.item(), np.concatenate([np.ravel(np.asarray(t.grad)) for t in tensors.values()])

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        flat = np.concatenate([np.ravel(part) for part in start.values()])
        options = {"maxiter": iterations, "maxfun": 2 * iterations, "ftol": 0.0, "gtol": 1e-11, "maxcor": 30}
        found = minimize(value, flat, jac=True, method="L-BFGS-B", options=options)
    finally:
        torch.set_num_threads(threads)
    return unpack(found.x), float(found.fun)


# -- one layer, all entries -------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Moments:
    """What the loss of one masked layer depends on; S is divided by n, D = d + 1.

    second: (D, D, D, D), E[S_ij S_kl].
    cross: (D, D, d), E[S_ij v_k].
    size: E[vᵀΣv], the loss of the answer 0.
    covariance: (d, d), Σ of the inputs.
    """

    second: Float64[np.ndarray, "D D D D"]
    cross: Float64[np.ndarray, "D D d"]
    size: float
    covariance: Float64[np.ndarray, "d d"]

    @property
    def rate(self) -> float:
        """The best η/n of the answer ηXᵀy: E[Xᵀy·Σv]/E[yᵀXΣXᵀy], times n."""
        d, covariance = len(self.covariance), self.covariance
        top = np.einsum("ik,ki->", covariance, self.cross[:d, d])
        return float(top / np.einsum("ik,ik->", covariance, self.second[:d, d, :d, d]))


def gaussian_moments(
    covariance: Float64[np.ndarray, "d d"],
    weight_covariance: Float64[np.ndarray, "d d"],
    n: int,
    noise_variance: float,
) -> Moments:
    """The exact moments for y = w·x + ε with x ~ N(0, Σ), w ~ N(0, weight_covariance), ε ~ N(0, σ²).

    Given w, nS is Wishart; over w the moments are polynomials of degree 4, for which three Gauss–Hermite
    points a direction are exact.
    """
    d = len(covariance)
    root = np.linalg.cholesky(weight_covariance)
    points, weights = np.polynomial.hermite_e.hermegauss(3)
    second, cross, size = np.zeros((d + 1,) * 4), np.zeros((d + 1, d + 1, d)), 0.0
    for index in product(range(3), repeat=d):
        w = root @ points[list(index)]
        p = np.prod(weights[list(index)] / weights.sum())
        C = np.block(
            [
                [covariance, (covariance @ w)[:, None]],
                [covariance @ w, w @ covariance @ w + noise_variance],
            ]
        )
        pairs = np.einsum("ik,jl->ijkl", C, C) + np.einsum("il,jk->ijkl", C, C)
        second += p * (np.einsum("ij,kl->ijkl", C, C) + pairs / n)
        cross += p * np.einsum("ij,k->ijk", C, w)
        size += p * w @ covariance @ w
    return Moments(second, cross, float(size), covariance)


def sampled_moments(
    X: Float64[np.ndarray, "M n d"], y: Float64[np.ndarray, "M n"], v: Float64[np.ndarray, "M d"]
) -> Moments:
    """The same averages over M prompts with inputs of covariance I."""
    (M, n, d), D = X.shape, X.shape[2] + 1
    second, cross = np.zeros((D * D, D * D)), np.zeros((D * D, d))
    parts = (np.array_split(of, M // 1000 + 1) for of in (X, y, v))  # they stay in the processor's cache
    for X_p, y_p, v_p in zip(*parts, strict=True):
        Z = np.concatenate([X_p, y_p[..., None]], axis=2)
        S = (Z.mT @ Z / n).reshape(-1, D * D)
        second, cross = second + S.T @ S / M, cross + S.T @ v_p / M
    return Moments(second.reshape((D,) * 4), cross.reshape(D, D, d), float((v * v).sum() / M), np.eye(d))


def layer_loss(A: Tensor, u: Tensor, moments: Moments) -> Tensor:
    """E|Σ^{1/2}(A S u − v)|²: the answer x_qᵀ A S u of one masked layer.

    Args:
        A: (d, D) tensor, rows of W3 W1 that the query's x can ask with.
        u: (D,) tensor, the column of W2 that is read out.
    """
    D, d = len(u), len(A)
    by_pairs = torch.from_numpy(moments.second.transpose(0, 2, 1, 3).reshape(D * D, D * D))
    square = (by_pairs @ torch.outer(u, u).ravel()).reshape(D, D)  # E[S u uᵀ S]
    linear = (torch.from_numpy(moments.cross.transpose(0, 2, 1).reshape(D * d, D)) @ u).reshape(D, d)
    return (torch.from_numpy(moments.covariance) @ A * (A @ square - 2 * linear.T)).sum() + moments.size


def fit_layer(moments: Moments, seed: int, *, read_y: bool = False) -> tuple[Arrays, float]:
    """Train key, query, value matrices (D, D) and read-out (D,) from random entries, all of them free.

    Args:
        moments: the loss.
        seed: of the entries.
        read_y: start value and read-out so that u = e_y, for targets whose random starts end elsewhere.

    Returns:
        A (d, D) and u (D,) of the answer x_qᵀ A (S/n) u, and the loss.
    """
    d = len(moments.covariance)
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed)))
    start = {name: rng.standard_normal((d + 1, d + 1)) / np.sqrt(d + 1) for name in ("key", "query", "value")}
    start["read_out"] = rng.standard_normal(d + 1) / np.sqrt(d + 1)
    if read_y:
        start["value"], start["read_out"] = np.eye(d + 1), np.eye(d + 1)[d]

    def parts(p: Mapping[str, Any]) -> tuple[Any, Any]:
        return (p["query"].T @ p["key"])[:d], p["value"].T @ p["read_out"]

    found, loss = minimise(lambda p: layer_loss(*parts(p), moments), start, 500)
    A, u = parts(found)
    return {"A": A, "u": u}, loss


# -- stacks -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StackConfig:
    """What regenerates a fitted stack.

    Args:
        kind: "preconditioned" (A_l, B_l free, `heads.preconditioned`) or "diagonal" (`heads.diagonal`).
        layers, n, prompts, seed, iterations: as they say; S is divided by n.
        eigenvalues: of Σ, whose axes are rotated at random by the seed `rotation`; w ~ N(0, Σ⁻¹).
        noise: ε's standard deviation is uniform between 0 and this, one draw a prompt.
        free: for "diagonal", which of ω_xx, ω_xy, ω_yx, ω_yy are trained; the others stay 0.
        start: for "diagonal", ω_xx and ω_xy at the start, two numbers for every layer or 2L.

    Raises:
        ValueError: another kind.
    """

    kind: str
    layers: int
    eigenvalues: tuple[float, ...]
    n: int = 20
    prompts: int = 12_000
    seed: int = 1
    iterations: int = 300
    rotation: int = 7
    noise: float = 0.0
    free: tuple[bool, bool, bool, bool] = (True, True, True, True)
    start: tuple[float, ...] = (-0.1, -0.4)

    def __post_init__(self) -> None:
        if self.kind not in ("preconditioned", "diagonal"):
            raise ValueError(f"kind is {self.kind!r}, expected 'preconditioned' or 'diagonal'")

    @property
    def covariance(self) -> Float64[np.ndarray, "d d"]:
        """Σ = U diag(eigenvalues) Uᵀ."""
        rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence(self.rotation)))
        U = np.linalg.qr(rng.standard_normal((len(self.eigenvalues),) * 2))[0]
        return U @ np.diag(self.eigenvalues) @ U.T


def gram_matrices(
    config: StackConfig, prompts: int, seed: int
) -> tuple[Float64[np.ndarray, "M D D"], Float64[np.ndarray, "M d"], Float64[np.ndarray, "M"]]:
    """(S/n, w, σ) of fresh prompts: x ~ N(0, Σ), w ~ N(0, Σ⁻¹), y = w·x + σε."""
    d = len(config.eigenvalues)
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([config.seed, seed])))
    root = np.linalg.cholesky(config.covariance)
    X = rng.standard_normal((prompts, config.n, d)) @ root.T
    w = np.linalg.solve(root.T, rng.standard_normal((prompts, d)).T).T
    sigma = config.noise * rng.uniform(size=prompts)
    y = (X @ w[..., None])[..., 0] + sigma[:, None] * rng.standard_normal((prompts, config.n))
    Z = np.concatenate([X, y[..., None]], axis=2)
    return Z.mT @ Z / config.n, w, sigma


def stack_answer(parameters: Mapping[str, Tensor], S: Tensor) -> Tensor:
    """ŵ (M, d) of a stack whose prediction is minus the query's y, for Gram matrices S (M, D, D).

    Parameters: A and B (L, d, d) of `heads.preconditioned`, or omega (L, 4) of `heads.diagonal`.
    """
    # Layer l multiplies G by I + E_l, with E_l made from K = GᵀSG. Only G's y column is wanted: K is carried
    # forward, and the column is multiplied out from the last layer back.
    D, K = S.shape[-1], S
    factors: list[Tensor] = []
    for layer in range(len(next(iter(parameters.values())))):
        if layer:
            F = K + K @ factors[-1]
            K = F + factors[-1].mT @ F
        if "omega" in parameters:
            xx, xy, yx, yy = parameters["omega"][layer]
            by_x, by_y = torch.stack([*[xx] * (D - 1), xy]), torch.stack([*[yx] * (D - 1), yy])
            factors.append(K * torch.stack([*[by_x] * (D - 1), by_y]))
        else:
            ask = torch.block_diag(parameters["A"][layer], torch.zeros(1, 1, dtype=S.dtype))
            write = torch.block_diag(parameters["B"][layer], -torch.ones(1, 1, dtype=S.dtype))
            factors.append(ask @ K @ write)
    column = torch.eye(D, dtype=S.dtype)[:, -1:].expand(len(S), D, 1)
    for E in reversed(factors):
        column = column + E @ column
    return -column[:, :-1, 0]


def stack_loss(parameters: Mapping[str, Tensor], S: Tensor, w: Tensor, covariance: Tensor) -> Tensor:
    """E|Σ^{1/2}(ŵ − w)|² over the prompts behind S."""
    gap = stack_answer(parameters, S) - w
    return (gap @ covariance * gap).sum() / len(w)


def fit_stack(config: StackConfig) -> tuple[Arrays, float]:
    """Train a stack by L-BFGS from small random entries on fixed prompts; its arrays and training loss."""
    S, w, _ = gram_matrices(config, config.prompts, 0)
    S_t, w_t, covariance = map(torch.from_numpy, (S, w, config.covariance))
    rng = np.random.Generator(np.random.PCG64(np.random.SeedSequence([config.seed, 1])))
    d, L = len(config.eigenvalues), config.layers
    start: Arrays
    if config.kind == "diagonal":
        mask = torch.tensor(config.free, dtype=torch.float64)
        start = {"omega": 0.003 * rng.standard_normal((L, 4))}
        start["omega"][:, :2] += np.resize(config.start, (L, 2))
        found, loss = minimise(
            lambda p: stack_loss({"omega": p["omega"] * mask}, S_t, w_t, covariance), start, config.iterations
        )
        return {"omega": found["omega"] * np.array(config.free)}, loss
    start = {"A": 0.1 * rng.standard_normal((L, d, d)), "B": 0.1 * rng.standard_normal((L, d, d))}
    start["B"][-1] = 0.0  # nothing reads the last layer's x
    return minimise(lambda p: stack_loss(p, S_t, w_t, covariance), start, config.iterations)


def save_fits(path: Path, fits: Mapping[str, tuple[StackConfig, Arrays, float]]) -> None:
    """Write configs, arrays (every digit) and losses as JSON."""
    entries = {}
    for name, (config, arrays, loss) in fits.items():
        lists = {key: value.tolist() for key, value in arrays.items()}
        entries[name] = {"config": asdict(config), "arrays": lists, "loss": loss}
    path.write_text(json.dumps(entries, indent=1) + "\n", encoding="utf-8")


def load_fits(path: Path) -> dict[str, tuple[StackConfig, Arrays, float]]:
    """Read what `save_fits` wrote."""
    entries = json.loads(path.read_text(encoding="utf-8"))
    fits = {}
    for name, entry in entries.items():
        settings: dict[str, Any] = {
            k: tuple(v) if isinstance(v, list) else v for k, v in entry["config"].items()
        }
        arrays = {key: np.array(value) for key, value in entry["arrays"].items()}
        fits[name] = StackConfig(**settings), arrays, entry["loss"]
    return fits
