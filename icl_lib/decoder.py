"""A transformer decoder as Akyürek et al. (2022) write it: softmax attention, layer norm, GeLU, residuals.

A hidden state is a column h_i of width H at time i; here the columns are the second-last axis of (M, T, H).
A layer follows their equations (1)-(7), in the order of their appendix C.4.3, and has no bias vectors:

    b_j = Σ_{k ≤ i} softmax_k((W_Q,j h_i)ᵀ W_K,j h_k) W_V,j h_k,    z_i = h_i + W_F [b_1; …; b_m],
    h'_i = z_i + W_2 GeLU(W_1 λ(z_i)),    λ(z) = (z − mean z) / sd z.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm


@dataclass(frozen=True)
class LayerShape:
    """The sizes of a decoder layer.

    Args:
        width: H, the hidden size.
        heads: m.
        head_width: v, numbers that a head moves.
        key_width: k, length of a query and of a key.
        units: U, width of the MLP; 0 leaves it out.
        null_slot: every softmax has one more entry, with logit 0 and value 0, so that a column may read
            nothing (the paper's "imaginary" timestep, appendix C.4).
        norm_first: attention reads λ(h) instead of h, as in the decoders that are trained in practice; their
            equations have no such norm.
        eps: added to the variance inside layer norm's root; 0 in the programs.

    Raises:
        ValueError: a size is below 1 (units, eps: below 0).
    """

    width: int
    heads: int
    head_width: int
    key_width: int
    units: int
    null_slot: bool = False
    norm_first: bool = False
    eps: float = 1e-5

    def __post_init__(self) -> None:
        for name, least in {
            "width": 1,
            "heads": 1,
            "head_width": 1,
            "key_width": 1,
            "units": 0,
            "eps": 0,
        }.items():
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)}, expected at least {least}")


class DecoderLayer(nn.Module):
    """One layer; its weights start at zero, so that it passes its input on unchanged.

    W_Q, W_K: (m, k, H). W_V: (m, v, H). W_F: (H, m·v). W_1: (U, H). W_2: (H, U).
    """

    W_Q: Tensor
    W_K: Tensor
    W_V: Tensor
    W_F: Tensor
    W_1: Tensor
    W_2: Tensor

    def __init__(self, shape: LayerShape, dtype: torch.dtype = torch.float64) -> None:
        super().__init__()
        self.shape = shape
        H, m, v = shape.width, shape.heads, shape.head_width
        sizes = {
            "W_Q": (m, shape.key_width, H),
            "W_K": (m, shape.key_width, H),
            "W_V": (m, v, H),
            "W_F": (H, m * v),
            "W_1": (shape.units, H),
            "W_2": (H, shape.units),
        }
        for name, size in sizes.items():
            self.register_parameter(name, nn.Parameter(torch.zeros(size, dtype=dtype)))

    def normal(self, h: Float[Tensor, "M T H"]) -> Float[Tensor, "M T H"]:
        """λ(h), eq. (7)."""
        return layer_norm(h, h.shape[-1:], eps=self.shape.eps)

    def pattern(self, h: Float[Tensor, "M T H"]) -> Float[Tensor, "M m T T"]:
        """How much column i (third axis) reads of column k (last axis); rows sum to 1 at most."""
        query, key = h[:, None] @ self.W_Q.mT, h[:, None] @ self.W_K.mT  # (M, m, T, k)
        later = torch.ones(h.shape[1], h.shape[1], dtype=torch.bool).triu(1)
        logits = (query @ key.mT).masked_fill(later, -torch.inf)
        if not self.shape.null_slot:
            return logits.softmax(dim=-1)
        nothing = torch.zeros_like(logits[..., :1])
        return torch.cat([nothing, logits], dim=-1).softmax(dim=-1)[..., 1:]

    def attend(self, h: Float[Tensor, "M T H"]) -> Float[Tensor, "M T H"]:
        """z: the residual stream after attention, eqs (1)-(3)."""
        read = self.normal(h) if self.shape.norm_first else h
        heads = self.pattern(read) @ (read[:, None] @ self.W_V.mT)  # (M, m, T, v)
        return h + heads.transpose(1, 2).flatten(2) @ self.W_F.mT

    def forward(self, h: Float[Tensor, "M T H"]) -> Float[Tensor, "M T H"]:
        """The hidden state after the layer, eqs (1)-(7)."""
        z = self.attend(h)
        if not self.shape.units:
            return z
        return z + gelu(self.normal(z) @ self.W_1.mT) @ self.W_2.mT


class Decoder(nn.Module):
    """Embedding, positions, a stack of layers, and one number read out of each column; all start at zero.

    W_e: (H, p). positions: (T, H). layers: L of `DecoderLayer`. w_out: (H,).

    Args:
        features: p, numbers in a token.
        columns: T, the longest sequence.
        layers: of one width and dtype; their other sizes may differ.
    """

    W_e: Tensor
    positions: Tensor
    w_out: Tensor

    def __init__(self, features: int, columns: int, layers: Sequence[DecoderLayer]) -> None:
        super().__init__()
        width, dtype = layers[0].shape.width, layers[0].W_Q.dtype
        sizes = {"W_e": (width, features), "positions": (columns, width), "w_out": (width,)}
        for name, size in sizes.items():
            self.register_parameter(name, nn.Parameter(torch.zeros(size, dtype=dtype)))
        self.layers = nn.ModuleList(layers)

    def hidden(self, tokens: Float[Tensor, "M T p"]) -> list[Float[Tensor, "M T H"]]:
        """The hidden matrix before the first layer and after each: L + 1 of them.

        Raises:
            ValueError: the sequence is longer than T, or its tokens have another size than p.
        """
        T, p = tokens.shape[1:]
        columns, features = len(self.positions), self.W_e.shape[1]
        if T > columns or p != features:
            raise ValueError(
                f"tokens are {T} columns of {p} numbers, expected at most {columns} columns of {features}"
            )
        states = [tokens @ self.W_e.mT + self.positions[:T]]
        for layer in self.layers:
            states.append(layer(states[-1]))
        return states

    def forward(self, tokens: Float[Tensor, "M T p"]) -> Float[Tensor, "M T"]:
        """The number read out of each column after the last layer."""
        return self.hidden(tokens)[-1] @ self.w_out
