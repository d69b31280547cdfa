"""Which learner does a trained decoder resemble? Regressions in d dimensions, training, two distances.

A context enters as Akyürek et al. (2022) write it, eq. (12): columns (0; x_1), (y_1; 0), (0; x_2), … After
each x the decoder answers from the pairs before it. SPD and implied weights are their eqs (15)-(17).
"""

from __future__ import annotations

import json
import time
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from numpy.random import PCG64, Generator, SeedSequence
from pydantic import BaseModel, ConfigDict, Field
from safetensors.numpy import load_file, save_file

from icl_lib.decoder import Decoder, DecoderLayer, LayerShape

RESULTS = Path(__file__).parent.parent / "results" / "decoders.json"


class DecoderConfig(BaseModel):
    """Everything that a trained decoder depends on; the same config gives the same weights on one machine.

    Variances are in units of y² (noise) and of a weight² (prior). `fixed_task` is the control: w is all ones
    in every context, so that nothing is left to learn from one.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    layers: int = Field(ge=1)
    seed: int = Field(ge=0)
    noise_variance: float = Field(default=0.0, ge=0)
    prior_variance: float = Field(default=1.0, gt=0)
    fixed_task: bool = False
    d: int = Field(default=2, ge=1)
    pairs: int = Field(default=7, ge=2, description="x's in a sequence; the last one's y is not given")
    width: int = 32
    heads: int = 4
    units: int = 64
    batch: int = 32
    steps: int = Field(default=4000, ge=0)
    rate: float = 5e-3

    def decoder(self, dtype: torch.dtype) -> Decoder:
        """A decoder of this config's sizes, all weights zero."""
        narrow = self.width // self.heads
        shape = LayerShape(self.width, self.heads, narrow, narrow, self.units, norm_first=True)
        layers = [DecoderLayer(shape, dtype) for _ in range(self.layers)]
        return Decoder(self.d + 1, 2 * self.pairs - 1, layers)

    @property
    def name(self) -> str:
        """A short name, different for every run of the study."""
        kind = "control" if self.fixed_task else f"noise {self.noise_variance:g}"
        return f"L{self.layers}, {kind}, prior {self.prior_variance:g}, {self.steps} steps, seed {self.seed}"


def sample_contexts(
    config: DecoderConfig, count: int, rng: Generator
) -> tuple[Float[np.ndarray, "M n d"], Float[np.ndarray, "M n"], Float[np.ndarray, "M d"]]:
    """x, y and w of `count` contexts: x ~ N(0, I), w ~ N(0, τ²I) (or ones), y = w·x + N(0, σ²)."""
    x = rng.standard_normal((count, config.pairs, config.d))
    w = np.sqrt(config.prior_variance) * rng.standard_normal((count, config.d))
    if config.fixed_task:
        w = np.ones_like(w)
    noise = np.sqrt(config.noise_variance) * rng.standard_normal(x.shape[:2])
    return x, np.einsum("mnd,md->mn", x, w) + noise, w


def interleaved(x: Float[np.ndarray, "M n d"], y: Float[np.ndarray, "M n"]) -> Float[np.ndarray, "M T p"]:
    """Tokens (y; x) of p = d + 1 numbers: T = 2n − 1 columns (0; x_1), (y_1; 0), …, (0; x_n), eq. (12).

    The last y is not used.
    """
    M, n, d = x.shape
    tokens = np.zeros((M, 2 * n - 1, d + 1))
    tokens[:, ::2, 1:] = x
    tokens[:, 1::2, 0] = y[:, :-1]
    return tokens


def initialise(config: DecoderConfig) -> Decoder:
    """The decoder before training: normal weights, scaled so that every layer's outputs have size 1."""
    rng = Generator(PCG64(SeedSequence(config.seed).spawn(2)[0]))
    decoder = config.decoder(torch.float32)
    deep = np.sqrt(2 * config.layers)
    for name, parameter in decoder.named_parameters():
        draw = rng.standard_normal(tuple(parameter.shape)) / np.sqrt(parameter.shape[-1])
        if name.endswith(("W_Q", "W_K")):
            draw /= (config.width // config.heads) ** 0.25  # so that logits have size 1
        elif name.endswith(("W_F", "W_2")):
            draw /= deep  # so that the residual stream keeps its size
        elif name in ("W_e", "positions"):
            draw *= np.sqrt(parameter.shape[-1])  # a position must be as visible as a number
        parameter.data = torch.tensor(draw, dtype=torch.float32)
    return decoder


def train(config: DecoderConfig) -> Decoder:
    """Train on fresh contexts: mean squared error of all answers, Adam, 5 % warm-up, then a cosine to 0."""
    torch.set_num_threads(1)
    rng = Generator(PCG64(SeedSequence(config.seed).spawn(2)[1]))
    decoder = initialise(config)
    optimiser = torch.optim.Adam(decoder.parameters(), lr=config.rate, fused=True)
    warm = max(1, config.steps // 20)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda t: min((t + 1) / warm, 0.5 + 0.5 * np.cos(np.pi * t / config.steps))
    )
    for _ in range(config.steps):
        x, y, _ = sample_contexts(config, config.batch, rng)
        tokens = torch.tensor(interleaved(x, y), dtype=torch.float32)
        error = decoder(tokens)[:, ::2] - torch.tensor(y, dtype=torch.float32)
        optimiser.zero_grad()
        error.square().mean().backward()
        optimiser.step()
        schedule.step()
    return decoder


def study() -> list[DecoderConfig]:
    """The runs of the chapter: depth 1-4 without noise, three pairs (σ², τ²) at depth 2, the control.

    The first pair is trained once more, ten times as long.
    """
    noisy = [(0.25, 1.0), (1.0, 1.0), (1.0, 4.0)]
    runs = []
    for seed in (1, 2, 3):
        runs += [DecoderConfig(layers=L, seed=seed) for L in (1, 2, 3, 4)]
        runs += [
            DecoderConfig(layers=2, seed=seed, noise_variance=noise, prior_variance=prior, steps=2400)
            for noise, prior in noisy
        ]
        runs.append(DecoderConfig(layers=2, seed=seed, noise_variance=0.25, steps=24000))
        runs.append(DecoderConfig(layers=4, seed=seed, fixed_task=True, steps=400))
    return runs


def train_study(path: Path = RESULTS) -> None:
    """Train what `path` lacks of the study; write configs and core seconds to it, weights beside it."""
    weights_path = path.with_suffix(".safetensors")
    runs = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    weights = load_file(weights_path) if weights_path.exists() else {}
    for config in study():
        if runs.get(config.name, {}).get("config") == config.model_dump():
            continue
        start = time.process_time()
        decoder = train(config)
        seconds = round(time.process_time() - start, 1)
        runs[config.name] = {"config": config.model_dump(), "core_seconds": seconds}
        weights |= {f"{config.name}/{name}": p.detach().numpy() for name, p in decoder.named_parameters()}
        path.write_text(json.dumps(runs, indent=1) + "\n", encoding="utf-8")
        save_file(weights, weights_path)


def load_study(path: Path = RESULTS) -> dict[DecoderConfig, Decoder]:
    """The trained decoders by their configs, in float32 as they were trained.

    Raises:
        FileNotFoundError: `path` or the weights beside it are missing.
    """
    weights = load_file(path.with_suffix(".safetensors"))
    found = {}
    for name, run in json.loads(path.read_text(encoding="utf-8")).items():
        config = DecoderConfig(**run["config"])
        decoder = config.decoder(torch.float32)
        state = {key: torch.tensor(weights[f"{name}/{key}"]) for key, _ in decoder.named_parameters()}
        decoder.load_state_dict(state)
        found[config] = decoder
    return found


# -- learners to compare with, and distances --------------------------------------------------------------


def ridge_weights(
    x: Float[np.ndarray, "M n d"], y: Float[np.ndarray, "M n"], penalty: float
) -> Float[np.ndarray, "M d"]:
    """(XᵀX + λI)⁻¹Xᵀy, eq. (10); at λ = 0 the least squares solution of least norm (OLS).

    Raises:
        ValueError: λ is negative.
    """
    if not penalty >= 0:
        raise ValueError(f"penalty is {penalty}, expected at least 0")
    if penalty == 0:
        return (np.linalg.pinv(x) @ y[..., None])[..., 0]
    moment = x.mT @ y[..., None]
    return np.linalg.solve(x.mT @ x + penalty * np.eye(x.shape[2]), moment)[..., 0]


def answers(
    decoder: Decoder, x: Float[np.ndarray, "M n d"], y: Float[np.ndarray, "M n"]
) -> Float[np.ndarray, "M n"]:
    """The decoder's answer at every x, from the pairs before it; the last y is not used."""
    with torch.no_grad():
        tokens = torch.tensor(interleaved(x, y), dtype=decoder.w_out.dtype)
        return decoder(tokens)[:, ::2].double().numpy()


def spd(first: Float[np.ndarray, "M *n"], second: Float[np.ndarray, "M *n"]) -> Float[np.ndarray, "*n"]:
    """Squared prediction difference, eq. (15): mean over contexts; the paper's figures divide it by d."""
    return np.mean((first - second) ** 2, axis=0)


def implied_weights(
    decoder: Decoder,
    x: Float[np.ndarray, "M n d"],
    y: Float[np.ndarray, "M n"],
    probes: Float[np.ndarray, "M P d"],
) -> Float[np.ndarray, "M d"]:
    """The weights that the decoder's answers at the probes imply after n pairs, eq. (16): least squares.

    The squared distance of two learners' weights, averaged over contexts, is their ILWD, eq. (17).
    """
    M, P, d = probes.shape
    asked = np.concatenate([np.repeat(x, P, axis=0), probes.reshape(M * P, 1, d)], axis=1)
    known = np.pad(np.repeat(y, P, axis=0), ((0, 0), (0, 1)))
    return (np.linalg.pinv(probes) @ answers(decoder, asked, known)[:, -1].reshape(M, P, 1))[..., 0]
