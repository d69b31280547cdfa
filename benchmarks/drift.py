"""How far plain PyTorch drifts from itself when only the threads or the instruction set change.

Run `python benchmarks/drift.py`: it trains one network in several child processes and writes
results/drift.json. The same start, the same batches, the same number of steps: a difference comes from
the order of sums alone.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch

STEPS = (100, 500)
# Name shown, threads, ATEN_CPU_CAPABILITY. An instruction set that the machine lacks is left out.
SETTINGS = (
    ("AVX2, 1 thread", 1, "avx2"),
    ("AVX2, 2 threads", 2, "avx2"),
    ("no AVX, 1 thread", 1, "default"),
    ("AVX-512, 1 thread", 1, "avx512"),
)
ROOT = Path(__file__).parent.parent


def train_plainly(threads: int) -> None:
    """Train in float32 with autograd and Adam; print the weights and the answers after each of STEPS."""
    from icl_lib import sample_prompts
    from icl_lib.engine import Trainer, TrainingConfig
    from icl_lib.engine.data import records, stream

    torch.set_num_threads(threads)
    config = TrainingConfig.paper(1)
    rows, features = config.architecture.rows, config.architecture.features
    data = records(config, config.n_train, stream(config.seed, "train"))
    tokens = torch.tensor(data[:, : rows * features].reshape(-1, rows, features))
    targets = torch.tensor(data[:, -1])
    test = torch.tensor(sample_prompts(1000, config.n_context, seed=7).tokens(), dtype=torch.float32)
    model = Trainer(config).weights.to_torch()
    model.b_out.requires_grad_(False)
    weights = [p for p in model.parameters() if p.requires_grad]
    optimiser = torch.optim.Adam(weights, lr=config.learning_rate)
    for step in range(max(STEPS)):
        batch = torch.arange(step * config.batch_size, (step + 1) * config.batch_size) % config.n_train
        penalty = config.l1 * (model.W_in.abs().sum() + model.W_out.abs().sum())
        loss = ((model(tokens[batch]) - targets[batch]) ** 2).mean() + penalty
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        if step + 1 in STEPS:
            flat = torch.cat([p.detach().ravel() for p in weights]).tolist()
            print(json.dumps({"weights": flat, "answers": model(test).tolist()}))


def main() -> None:
    """Compare every setting with the first."""
    seen = {}
    for name, threads, capability in SETTINGS:
        code = "import torch; print(torch.backends.cpu.get_cpu_capability())"
        environment = os.environ | {"ATEN_CPU_CAPABILITY": capability, "PYTHONPATH": str(ROOT)}
        real = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
        )
        if real.stdout.strip().lower() != capability:
            print(f"{name}: this machine has no {capability}, left out")
            continue
        command = [sys.executable, __file__, str(threads)]
        out = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
        seen[name] = [json.loads(line) for line in out.splitlines()]
        print(f"{name}: done")
    first = next(iter(seen.values()))
    rows = []
    for name, runs in seen.items():
        for steps, run, reference in zip(STEPS, runs, first, strict=True):
            row: dict[str, object] = {"setting": name, "steps": steps}
            for key in ("weights", "answers"):
                row[key] = float(np.abs(np.array(run[key]) - np.array(reference[key])).max())
            rows.append(row)
    (ROOT / "results" / "drift.json").write_text(
        json.dumps({"torch": torch.__version__, "rows": rows}, indent=1) + "\n"
    )


if __name__ == "__main__":
    train_plainly(int(sys.argv[1])) if len(sys.argv) > 1 else main()
