"""TF(D, L, K), the transformer with linear self-attention, as the paper writes it (sections 2.4-2.5)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType

import numpy as np
import torch
from jaxtyping import Float, Float64
from torch import Tensor, nn


@dataclass(frozen=True)
class Architecture:
    """The sizes and switches of a TF(D, L, K).

    Args:
        dim: D, the embedding dimension.
        layers: L.
        heads: K, heads in each layer.
        rows: S = N + 1, tokens of a prompt; W_out has one weight for each of their S·D cells.
        features: P, numbers in a token (3 for the paper's prompt).
        layer_norm: normalise H_l before the skip; Appendix B does not.

    Raises:
        ValueError: a size is below 1.
    """

    dim: int = 4
    layers: int = 2
    heads: int = 2
    rows: int = 51
    features: int = 3
    layer_norm: bool = True

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if name != "layer_norm" and value < 1:
                raise ValueError(f"{name} is {value}, expected at least 1")

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of each weight array, in the fixed order in which they are stored and hashed."""
        square = (self.layers, self.heads, self.dim, self.dim)
        return {
            "W_in": (self.dim, self.features),
            "W1": square,
            "W2": square,
            "W3": square,
            "W_out": (self.rows, self.dim),
            "b_out": (),
        }

    @property
    def n_weights(self) -> int:
        """Number of weights without the output bias: 408 for the paper's TF(4, 2, 2) at N = 50."""
        return sum(int(np.prod(shape)) for name, shape in self.shapes.items() if name != "b_out")


@dataclass(frozen=True, eq=False)
class Trace:
    """Every intermediate of one forward pass, by its paper name; NumPy float64.

    The first axis counts from 0: the paper's layer l is index l − 1, its head k index k − 1, its row n
    index n − 1.

    Q: (L+1, M, S, D). Q_l, the input of layer l, eqs (10), (16); the last one is the output of layer L.
    H_head: (L, K, M, S, D). H_{l,k} = LSA_{l,k}(Q_l), eq. (11).
    H: (L, M, S, D). H_l = Σ_k H_{l,k}, eq. (12).
    mu: (L, M, S). Mean of each row of H_l over the embedding, eq. (13).
    sigma: (L, M, S). Standard deviation of the same, population, without eps, eq. (14).
    LN: (L, M, S, D). The normalised H_l, eq. (15), with eps inside the root; H_l itself without layer norm.
    output: (M,). Q_out(P), eq. (17).
    """

    Q: Float64[np.ndarray, "layers_and_1 M S D"]
    H_head: Float64[np.ndarray, "L K M S D"]
    H: Float64[np.ndarray, "L M S D"]
    mu: Float64[np.ndarray, "L M S"]
    sigma: Float64[np.ndarray, "L M S"]
    LN: Float64[np.ndarray, "L M S D"]
    output: Float64[np.ndarray, "M"]


def lsa(Q, W1, W2, W3):  # type: ignore[no-untyped-def]  # NumPy or PyTorch, any leading axes
    """Linear self-attention LSA(Q) = (Q W3)(W1 Qᵀ Q W2), eq. (9): no softmax, no mask, no 1/N.

    QᵀQ is formed first: the cost is O(S·D²), and no S × S product appears.

    Args:
        Q: (..., S, D) array or tensor.
        W1, W2, W3: (..., D, D), leading axes broadcast against those of Q.

    Returns:
        (..., S, D), of the same kind as Q.
    """
    return Q @ W3 @ (W1 @ (Q.mT @ Q) @ W2)


class Transformer(nn.Module):
    """TF(D, L, K) as a PyTorch module; its parameters start at zero (fill them from `Weights.to_torch`).

    There is no b_in: each token carries the constant 1, so a bias of the embedding adds nothing that the
    first column of W_in lacks.

    Args:
        architecture: sizes and switches.
        eps: added to the variance inside layer norm's root; `torch.nn.LayerNorm` uses 1e-5.
        dtype: torch.float32 or torch.float64.
    """

    W_in: Tensor
    W1: Tensor
    W2: Tensor
    W3: Tensor
    W_out: Tensor
    b_out: Tensor

    def __init__(self, architecture: Architecture, *, eps: float, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.architecture, self.eps = architecture, eps
        for name, shape in architecture.shapes.items():
            self.register_parameter(name, nn.Parameter(torch.zeros(shape, dtype=dtype)))

    def attention(self, Q: Float[Tensor, "M S D"], layer: int) -> Float[Tensor, "M K S D"]:
        """H_{l,k} for each head of a layer (index from 0), eq. (11)."""
        return lsa(Q[:, None], self.W1[layer], self.W2[layer], self.W3[layer])

    def normalise(
        self, H: Float[Tensor, "M S D"]
    ) -> tuple[Float[Tensor, "M S D"], Float[Tensor, "M S"], Float[Tensor, "M S"]]:
        """LN(H), μ and σ of each row over the embedding, eqs (13)-(15); population variance, no affine."""
        mu = H.mean(dim=-1)
        centred = H - mu[..., None]
        variance = (centred * centred).mean(dim=-1)
        if not self.architecture.layer_norm:
            return H, mu, variance.sqrt()
        return centred / (variance + self.eps).sqrt()[..., None], mu, variance.sqrt()

    def steps(
        self,
        tokens: Float[Tensor, "M S P"],
        clamp: Mapping[int, Float[Tensor, "M S"]] = MappingProxyType({}),
    ) -> dict[str, list[Tensor]]:
        """Run the forward pass and keep every intermediate: one entry a layer under `Trace`'s names.

        `clamp` gives denominators that a layer (index from 0) must use in place of its own √(σ² + eps): an
        intervention on what its layer norm divides by.
        """
        Q = tokens @ self.W_in.mT  # (M, S, D), eq. (10)
        kept: dict[str, list[Tensor]] = {name: [] for name in ("H_head", "H", "mu", "sigma", "LN")} | {
            "Q": [Q]
        }
        for layer in range(self.architecture.layers):
            heads = self.attention(Q, layer)
            H = heads.sum(dim=1)  # eq. (12)
            normal, mu, sigma = self.normalise(H)
            if layer in clamp:
                normal = (H - mu[..., None]) / clamp[layer][..., None]
            Q = Q + normal  # eq. (16)
            for name, value in zip(
                ("H_head", "H", "mu", "sigma", "LN", "Q"),
                (heads.transpose(0, 1), H, mu, sigma, normal, Q),
                strict=True,
            ):
                kept[name].append(value)
        return kept

    def read_out(self, Q: Float[Tensor, "M S D"]) -> Float[Tensor, "M"]:
        """W_outᵀ vec(Q) + b_out, vec row by row, eq. (17)."""
        return (Q * self.W_out).sum(dim=(1, 2)) + self.b_out

    def forward(self, tokens: Float[Tensor, "M S P"]) -> Float[Tensor, "M"]:
        """The prediction of each prompt."""
        return self.read_out(self.steps(tokens)["Q"][-1])

    def trace(self, tokens: Float[Tensor, "M S P"]) -> Trace:
        """The same pass with every intermediate, as NumPy float64."""
        with torch.no_grad():
            kept = self.steps(tokens)
            stacked = {name: torch.stack(values).double().numpy() for name, values in kept.items()}
            return Trace(output=self.read_out(kept["Q"][-1]).double().numpy(), **stacked)
