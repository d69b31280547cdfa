"""One contender of the speed benchmark: a child process that trains some steps when it is told to.

    python benchmarks/contenders.py NAME N D STEPS

answers "losses" with those of its next two steps (the first two are from the same weights and batches for
every contender, so that values are compared before speeds), and "seconds" with what STEPS steps took. A step
is gather, forward, backward, ℓ1 and Adam on 500 prompts, in float32, on one core.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from icl_lib.engine import Trainer, TrainingConfig

BATCH, BATCHES = 500, 4
Step = Callable[[int, int], list[float]]  # train on `count` batches from number `first`; their losses


def problem(n_context: int, dim: int) -> tuple[TrainingConfig, Trainer]:
    """The paper's training at another size, on four fixed batches."""
    config = TrainingConfig.paper(
        1, n_context=n_context, dim=dim, n_train=BATCH * BATCHES, n_validation=1, shuffle=False, epochs=10**9
    )
    return config, Trainer(config)


def unpacked(trainer: Trainer) -> tuple[np.ndarray, np.ndarray]:
    """Tokens (M, S, P) and targets (M,), float32."""
    shape = trainer.config.architecture
    data = trainer.train_records
    tokens = data[:, : shape.rows * shape.features].reshape(-1, shape.rows, shape.features)
    return np.ascontiguousarray(tokens), data[:, -1].copy()


def order(first: int, count: int) -> np.ndarray:
    """The prompts of `count` batches from number `first`, (count, BATCH)."""
    return np.arange(first * BATCH, (first + count) * BATCH).reshape(count, BATCH) % (BATCH * BATCHES)


# The network as the engine computes it, H = Q A with the prompt index innermost, in the form of two that each
# compiler does better with: whole arrays for torch.compile (3 times), one array a column for JAX (20 times).


def lanes_whole(w: dict[str, Any], tokens: Any, config: TrainingConfig) -> Any:
    """Answers (M,) by PyTorch, Q an array (S, D, M)."""
    Q = (w["W_in"][None, :, :, None] * tokens.permute(1, 2, 0).contiguous()[:, None]).sum(2)
    for l in range(config.layers):
        gram = (Q[:, :, None] * Q[:, None]).sum(0)
        A = 0.0
        for k in range(config.heads):
            left = w["W3"][l, k] @ w["W1"][l, k]
            half = (left[:, :, None, None] * gram[None]).sum(1)
            A = A + (half[:, :, None] * w["W2"][l, k][None, :, :, None]).sum(1)
        H = (Q[:, :, None] * A[None]).sum(1)
        H = H - H.mean(1, keepdim=True)
        Q = Q + H / ((H * H).mean(1, keepdim=True) + config.eps).sqrt()
    return (Q * w["W_out"][:, :, None]).sum((0, 1))


def lanes_by_column(w: dict[str, Any], tokens: Any, config: TrainingConfig) -> Any:
    """Answers (M,) by JAX, Q a list of D arrays (S, M)."""
    import jax.numpy as jnp

    D, x = config.dim, tokens.transpose(1, 2, 0)  # (S, P, M)
    q = [sum(w["W_in"][d, p] * x[:, p] for p in range(x.shape[1])) for d in range(D)]
    for l in range(config.layers):
        cells = {(a, b): (q[a] * q[b]).sum(0) for a in range(D) for b in range(a, D)}
        gram = jnp.stack([jnp.stack([cells[min(a, b), max(a, b)] for b in range(D)]) for a in range(D)])
        A = sum(
            jnp.einsum("ab,bcm,cd->adm", w["W3"][l, k] @ w["W1"][l, k], gram, w["W2"][l, k])
            for k in range(config.heads)
        )
        h = [sum(q[a] * A[a, d] for a in range(D)) for d in range(D)]
        mean = sum(h) / D
        h = [column - mean for column in h]
        root = jnp.sqrt(sum(column * column for column in h) / D + config.eps)
        q = [column + normal / root for column, normal in zip(q, h, strict=True)]
    return sum((q[d] * w["W_out"][:, d, None]).sum(0) for d in range(D))


def engine(n_context: int, dim: int) -> Step:
    """This library."""
    config, trainer = problem(n_context, dim)
    l1, records = np.float32(config.l1), trainer.train_records

    def step(first: int, count: int) -> list[float]:
        rows = order(first, count)
        batches = list(rows) if count == 2 else [rows.ravel()]  # each loss on its own, or one call
        state = trainer._parameters, trainer.mean, trainer.square, trainer.powers, trainer.rate
        scratch = trainer._gradient, trainer._work
        return [trainer._pass(*state, l1, l1, records, batch, BATCH, *scratch) for batch in batches]

    return step


def torch_step(n_context: int, dim: int, *, lanes: bool, compiled: bool) -> Step:
    """`transformer.py` with autograd and torch.optim.Adam, or the same with the prompt index innermost."""
    import torch

    torch.set_num_threads(1)
    config, trainer = problem(n_context, dim)
    tokens, targets = (torch.tensor(array) for array in unpacked(trainer))
    module = trainer.weights.to_torch()
    module.b_out.requires_grad_(False)
    weights = [p for p in module.parameters() if p.requires_grad]
    optimiser = torch.optim.Adam(weights, lr=config.learning_rate, fused=compiled)

    def objective(tokens: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        named = dict(module.named_parameters())
        answer = lanes_whole(named, tokens, config) if lanes else module(tokens)
        error = ((answer - targets) ** 2).mean()
        return error, error + config.l1 * (module.W_in.abs().sum() + module.W_out.abs().sum())

    if compiled:
        objective = torch.compile(objective, fullgraph=True, dynamic=False)

    def step(first: int, count: int) -> list[float]:
        losses = []
        for rows in order(first, count):
            batch = torch.from_numpy(rows)
            error, loss = objective(tokens[batch], targets[batch])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            losses.append(error.item())
        return losses

    return step


def jax_step(n_context: int, dim: int, *, lanes: bool) -> Step:
    """JAX: the steps in one jitted scan, gradient by grad, Adam written out."""
    import jax
    import jax.numpy as jnp

    config, trainer = problem(n_context, dim)
    tokens, targets = (jnp.asarray(array) for array in unpacked(trainer))
    start = {name: jnp.asarray(array) for name, array in trainer.weights.arrays().items() if name != "b_out"}

    def collapsed(w: Any, tokens: Any) -> Any:
        Q = tokens @ w["W_in"].T
        for layer in range(config.layers):
            gram = Q.mT @ Q
            heads = range(config.heads)
            A = sum(w["W3"][layer, k] @ w["W1"][layer, k] @ gram @ w["W2"][layer, k] for k in heads)
            H = Q @ A
            H = H - H.mean(-1, keepdims=True)
            Q = Q + H / jnp.sqrt((H * H).mean(-1, keepdims=True) + config.eps)
        return (Q * w["W_out"]).sum((1, 2))

    def objective(w: Any, batch: Any) -> Any:
        answer = lanes_by_column(w, tokens[batch], config) if lanes else collapsed(w, tokens[batch])
        error = ((answer - targets[batch]) ** 2).mean()
        return error + config.l1 * (jnp.abs(w["W_in"]).sum() + jnp.abs(w["W_out"]).sum()), error

    def adam(state: Any, batch: Any) -> Any:
        w, mean, square, p1, p2 = state
        (_, error), grad = jax.value_and_grad(objective, has_aux=True)(w, batch)
        p1, p2 = p1 * config.beta1, p2 * config.beta2
        mean = jax.tree.map(lambda m, g: config.beta1 * m + (1 - config.beta1) * g, mean, grad)
        square = jax.tree.map(lambda s, g: config.beta2 * s + (1 - config.beta2) * g * g, square, grad)
        w = jax.tree.map(
            lambda x, m, s: (
                x - config.learning_rate / (1 - p1) * m / (jnp.sqrt(s) / jnp.sqrt(1 - p2) + config.adam_eps)
            ),
            w,
            mean,
            square,
        )
        return (w, mean, square, p1, p2), error

    run = jax.jit(lambda state, batches: jax.lax.scan(adam, state, batches))
    zeros = jax.tree.map(jnp.zeros_like, start)
    state = [(start, zeros, zeros, jnp.float32(1), jnp.float32(1))]

    def step(first: int, count: int) -> list[float]:
        state[0], errors = run(state[0], jnp.asarray(order(first, count)))
        return np.asarray(errors).tolist()

    return step


CONTENDERS: dict[str, Callable[[int, int], Step]] = {
    "engine": engine,
    "PyTorch": lambda n, d: torch_step(n, d, lanes=False, compiled=False),
    "torch.compile": lambda n, d: torch_step(n, d, lanes=False, compiled=True),
    "torch.compile, lanes": lambda n, d: torch_step(n, d, lanes=True, compiled=True),
    "JAX": lambda n, d: jax_step(n, d, lanes=False),
    "JAX, lanes": lambda n, d: jax_step(n, d, lanes=True),
}


def main() -> None:
    """Serve the parent."""
    name, n_context, dim, steps = sys.argv[1], *map(int, sys.argv[2:])
    step = CONTENDERS[name](n_context, dim)
    first = 0
    for line in sys.stdin:
        if line.strip() == "losses":
            print(*step(first, 2), flush=True)
            first += 2
        else:
            begin = time.perf_counter()
            step(first, steps)
            print(time.perf_counter() - begin, flush=True)
            first += steps


if __name__ == "__main__":
    main()
