"""What the explorer is compared with: the library's networks, and a forward pass with cells cut."""

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from icl_lib import Prompts, tilted
from icl_lib.explorer import TILTED_SCALE, data, examples, labelled, scaled, trained
from icl_lib.weights import Weights

RESULTS = Path(__file__).resolve().parents[1] / "results" / "penalty"
N, D = 50, 4


@cache
def shown() -> dict[str, Any]:
    """What the page's scripts are given."""
    return data(RESULTS)


@cache
def fixed() -> dict[str, Weights]:
    """The networks without a choice of R."""
    table, networks = labelled(RESULTS)
    kinds = {name: weights for name, (weights, _) in examples(table, networks).items()}
    return {"tilted": tilted(N, TILTED_SCALE), **trained(networks), **kinds}


def library(name: str, R: float) -> Weights:
    """A network from the library rather than from the page's script."""
    return fixed()[name] if name in fixed() else scaled(R)[name]


def by_hand(weights: Weights, prompts: Prompts, cuts: dict[str, list[tuple[int, int]]]) -> float:
    """The answer with cells set to 0 (row and embedding from 0): head by head, with the S × S products."""

    def cut(name: str, tensor: np.ndarray) -> np.ndarray:
        tensor = tensor.copy()
        for n, d in cuts.get(name, []):
            tensor[n, d] = 0.0
        return tensor

    Q = cut("Q_1", prompts.tokens()[0] @ weights.W_in.T)
    for layer in range(2):
        heads = [
            (Q @ weights.W3[layer, k] @ weights.W1[layer, k] @ Q.T) @ (Q @ weights.W2[layer, k])
            for k in range(2)
        ]
        H = cut(f"H_{layer + 1}", sum(heads[1:], heads[0]))
        spread = np.sqrt(H.var(axis=1, keepdims=True) + weights.eps)
        Q = cut(f"Q_{layer + 2}", Q + cut(f"LN_{layer + 1}", (H - H.mean(axis=1, keepdims=True)) / spread))
    return float(cut("out", weights.W_out * Q).sum() + weights.b_out)
