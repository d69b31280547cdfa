"""`Weights`: the numbers of a TF(D, L, K), frozen, with safe storage and a digest."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float, Float64
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from icl_lib.prompts import Prompts
from icl_lib.transformer import Architecture, Trace, Transformer

CHUNK_ROWS = 2**15  # token rows of one forward pass: keeps `predict` inside the cache


class WeightsFileError(ValueError):
    """A weights file that cannot be used; the message says why and what was expected."""


@dataclass(frozen=True, eq=False)
class Weights:
    """All weights of a TF(D, L, K), and how they are to be run.

    Args:
        W_in: (D, P) embedding, eq. (10).
        W1, W2, W3: (L, K, D, D) each; head k of layer l is LSA(Q) = (Q W3)(W1 QᵀQ W2), eq. (9).
        W_out: (S, D); `W_out[n-1, d-1]` weighs the paper's (d, n) cell, eq. (17).
        b_out: output bias.
        layer_norm: normalise H_l before the skip.
        eps: layer norm's eps, 0 for what is written by hand.

    All arrays share one dtype, float32 or float64, and become read-only.

    Raises:
        ValueError: shapes that do not fit together, mixed dtypes, an entry that is not finite, negative eps.
    """

    W_in: Float[np.ndarray, "D P"]
    W1: Float[np.ndarray, "L K D D"]
    W2: Float[np.ndarray, "L K D D"]
    W3: Float[np.ndarray, "L K D D"]
    W_out: Float[np.ndarray, "S D"]
    b_out: float = 0.0
    layer_norm: bool = True
    eps: float = 0.0

    FORMAT: ClassVar[str] = "icl_lib.Weights/1"

    def __post_init__(self) -> None:
        if not (np.isfinite(self.eps) and self.eps >= 0):
            raise ValueError(f"eps is {self.eps}, expected a finite number that is not negative")
        if np.ndim(self.W_in) != 2 or np.ndim(self.W1) != 4 or np.ndim(self.W_out) != 2:
            raise ValueError(
                f"W_in, W1, W_out have shapes {np.shape(self.W_in)}, {np.shape(self.W1)}, "
                f"{np.shape(self.W_out)}; expected (D, P), (L, K, D, D), (S, D)"
            )
        dtype = np.asarray(self.W_in).dtype
        if dtype not in (np.float32, np.float64):
            raise ValueError(f"W_in has dtype {dtype}, expected float32 or float64")
        for name, shape in self.architecture.shapes.items():
            array = np.array(getattr(self, name), dtype=dtype if name == "b_out" else None)
            if array.shape != shape:
                raise ValueError(f"{name} has shape {array.shape}, expected {shape} to fit the other weights")
            if array.dtype != dtype:
                raise ValueError(f"{name} has dtype {array.dtype}, expected {dtype} as in W_in")
            if not np.isfinite(array).all():
                raise ValueError(f"{name} has an entry that is NaN or infinite")
            array.flags.writeable = False
            object.__setattr__(self, name, array if array.ndim else float(array))

    @property
    def architecture(self) -> Architecture:
        """Sizes and switches, read off the arrays."""
        layers, heads, dim = np.shape(self.W1)[:3]
        return Architecture(
            dim, layers, heads, np.shape(self.W_out)[0], np.shape(self.W_in)[1], self.layer_norm
        )

    @property
    def dtype(self) -> np.dtype:
        """float32 for what the engine trains by default, float64 for constructions."""
        return self.W_in.dtype

    def arrays(self) -> dict[str, np.ndarray]:
        """The arrays in their fixed order, the bias as a 0-d array."""
        return {name: np.asarray(getattr(self, name), dtype=self.dtype) for name in self.architecture.shapes}

    @property
    def digest(self) -> str:
        """sha256 in hexadecimal of architecture, eps, dtype and bytes in a fixed order."""
        hasher = hashlib.sha256(json.dumps(self._header(), sort_keys=True).encode())
        for array in self.arrays().values():
            hasher.update(array.astype(array.dtype.newbyteorder("<")).tobytes())
        return hasher.hexdigest()

    def _header(self) -> dict[str, object]:
        return asdict(self.architecture) | {"eps": float(self.eps), "dtype": self.dtype.name}

    # -- running -----------------------------------------------------------------------------------

    def to_torch(self, eps: float | None = None, dtype: torch.dtype | None = None) -> Transformer:
        """These weights as a PyTorch module, in their own dtype and eps unless others are given."""
        dtype = dtype or getattr(torch, self.dtype.name)
        module = Transformer(self.architecture, eps=self.eps if eps is None else eps, dtype=dtype)
        state = {name: torch.tensor(array, dtype=dtype) for name, array in self.arrays().items()}
        module.load_state_dict(state)
        return module

    @classmethod
    def from_torch(cls, module: Transformer) -> Weights:
        """The weights of a `Transformer` module, whoever trained it."""
        arrays = {name: value.detach().cpu().numpy() for name, value in module.named_parameters()}
        return cls.from_arrays(arrays, layer_norm=module.architecture.layer_norm, eps=module.eps)

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], *, layer_norm: bool, eps: float) -> Weights:
        """The inverse of `arrays()`: the bias may be a 0-d array; raises as the constructor does."""
        b_out = float(arrays["b_out"])
        square = {name: arrays[name] for name in ("W_in", "W1", "W2", "W3", "W_out")}
        return cls(**square, b_out=b_out, layer_norm=layer_norm, eps=eps)

    def _tokens(self, prompts: Prompts | Float[np.ndarray, "M S P"]) -> Float64[np.ndarray, "M S P"]:
        """The tokens of `prompts`, refused where they do not fit this network."""
        tokens = prompts.tokens() if isinstance(prompts, Prompts) else np.asarray(prompts, dtype=np.float64)
        expected = (self.architecture.rows, self.architecture.features)
        if tokens.ndim != 3 or tokens.shape[1:] != expected:
            raise ValueError(
                f"prompts give tokens of shape {tokens.shape}, these weights expect (M, {expected[0]}, "
                f"{expected[1]}): N = {expected[0] - 1} context points and the query"
            )
        return tokens

    def predict(
        self,
        prompts: Prompts | Float[np.ndarray, "M S P"],
        eps: float | None = None,
        dtype: torch.dtype = torch.float64,
    ) -> Float64[np.ndarray, "M"]:
        """The network's answer to each prompt, eq. (17).

        Args:
            prompts: `Prompts`, or tokens of shape (M, S, P).
            eps: layer norm's eps; None is the weights' own.
            dtype: the arithmetic of the pass; the answer is float64 whatever it is.

        Raises:
            ValueError: prompts of another N, or an answer that is not finite (a row of σ = 0 with eps = 0).
        """
        tokens, module = torch.tensor(self._tokens(prompts), dtype=dtype), self.to_torch(eps, dtype)
        with torch.no_grad():
            answer = (
                torch.cat([module(part) for part in tokens.split(max(1, CHUNK_ROWS // tokens.shape[1]))])
                .double()
                .numpy()
            )
        self._refuse_nan(answer, module.eps)
        return answer

    def trace(self, prompts: Prompts | Float[np.ndarray, "M S P"], eps: float | None = None) -> Trace:
        """Every intermediate of the float64 pass, by its paper name; arguments and errors as in `predict`."""
        module = self.to_torch(eps, torch.float64)
        trace = module.trace(torch.tensor(self._tokens(prompts)))
        self._refuse_nan(trace.output, module.eps)
        return trace

    @staticmethod
    def _refuse_nan(answer: np.ndarray, eps: float) -> None:
        bad = np.flatnonzero(~np.isfinite(answer))
        if bad.size:
            raise ValueError(
                f"the answer to prompt {bad[0]} ({bad.size} in all) is not finite with eps = {eps:g}: layer "
                "norm divides by σ = 0 in some row (all x equal does this), or numbers overflow; give eps > 0"
            )

    # -- storage -----------------------------------------------------------------------------------

    def save(self, path: str | Path) -> None:
        """Write a safetensors file whole or not at all: written aside, flushed to disk, then renamed.

        Raises:
            OSError: the folder is missing or the disk is full; `path` is left as it was.
        """
        path = Path(path)
        aside = path.with_name(f".{path.name}.{os.getpid()}.part")
        header = {"format": self.FORMAT, "architecture": json.dumps(self._header()), "digest": self.digest}
        try:
            with aside.open("wb") as file:
                file.write(save(self.arrays(), metadata=header))
                file.flush()
                os.fsync(file.fileno())
            aside.replace(path)
        finally:
            aside.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | Path) -> Weights:
        """Read what `save` wrote.

        Raises:
            FileNotFoundError: no such file.
            WeightsFileError: truncated or corrupt, another program's file, arrays of another shape or not
                finite, or bytes that do not match the stored digest.
        """
        try:
            with safe_open(path, framework="numpy") as file:
                meta = file.metadata() or {}
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        except SafetensorError as error:
            raise WeightsFileError(
                f"{path} is truncated, corrupt or not a safetensors file ({error}); restore it or train again"
            ) from error
        if meta.get("format") != cls.FORMAT:
            raise WeightsFileError(
                f"{path} was written by another program: its format is "
                f"{meta.get('format')!r}, expected {cls.FORMAT!r}"
            )
        try:
            head = json.loads(meta["architecture"])
            architecture = Architecture(**{k: v for k, v in head.items() if k not in ("eps", "dtype")})
            found = {name: array.shape for name, array in arrays.items()}
            if found != architecture.shapes:
                raise ValueError(f"its arrays have shapes {found}, its header says {architecture.shapes}")
            weights = cls.from_arrays(arrays, layer_norm=architecture.layer_norm, eps=head["eps"])
        except (KeyError, TypeError, ValueError) as error:
            raise WeightsFileError(f"{path} does not hold usable weights: {error}") from error
        if weights.digest != meta.get("digest"):
            raise WeightsFileError(
                f"{path} does not match its own digest: its content was changed after saving"
            )
        return weights
