"""The engine's speed against PyTorch, torch.compile and JAX, as ratios within one run.

    python benchmarks/speed.py                 twenty quiet minutes; writes results/benchmark.json
    python benchmarks/speed.py --part cores    one part of it: sizes, cores or runs
    python benchmarks/speed.py --quick         minutes: the paper's size, few repetitions, writes nothing

Needs benchmarks/requirements.txt and a C++ compiler (for torch.compile). Each contender is a process of its
own on core 0; they take turns, round after round, so that a slow minute of the machine hits all of them. A
ratio is the median over rounds of the ratio within a round.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from contenders import BATCH, CONTENDERS

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "results" / "benchmark.json"
ROUNDS = 5
SIZES = [(n, d) for d in (4, 8) for n in (50, 10, 500, 5000)]  # the paper's first
PAPER = (50, 4)
SECONDS = 0.5  # a turn's length, about
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_PLATFORMS": "cpu",
}
AGREEMENT = 2e-3  # relative, of the first two losses: float32, sums in other orders, one Adam step


class Child:
    """A contender's process."""

    def __init__(self, name: str, size: tuple[int, int], steps: int, core: int = 0) -> None:
        script = Path(__file__).with_name("contenders.py")
        self.steps = steps
        self.process = subprocess.Popen(
            [sys.executable, str(script), name, *map(str, size), str(steps)],
            env=os.environ | ONE_THREAD | {"PYTHONPATH": os.pathsep.join(paths())},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: os.sched_setaffinity(0, {core}),
        )

    def start(self, request: str) -> None:
        """Ask for "losses" or "seconds"."""
        assert self.process.stdin
        print(request, file=self.process.stdin, flush=True)

    def answer(self) -> list[float]:
        """Wait for what was asked."""
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"contender ended: {self.process.args!r}")
        return [float(word) for word in line.split()]

    def ask(self, request: str) -> list[float]:
        """Both."""
        self.start(request)
        return self.answer()

    def close(self) -> None:
        """End it."""
        self.process.stdin.close()  # type: ignore[union-attr]
        self.process.wait()


def paths() -> list[str]:
    """Where children find the library."""
    return [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]


def steps_for(name: str, size: tuple[int, int]) -> int:
    """About as many steps as fill a turn, by a rough rule."""
    milliseconds = {"engine": 0.3, "PyTorch": 12.0}.get(name, 5.0) * size[0] / 50 * (size[1] / 4) ** 2 + 0.3
    return max(3, round(1000 * SECONDS / milliseconds))


def compare(size: tuple[int, int], rounds: int) -> dict[str, object]:
    """Milliseconds a step of each contender, and its ratio to the engine, by turns."""
    children, losses = {}, {}
    names = [name for name in CONTENDERS if find_spec("jax") or not name.startswith("JAX")]
    for name in names:
        children[name] = Child(name, size, steps_for(name, size))
        losses[name] = children[name].ask("losses")
        children[name].ask("seconds")  # warm: compiled for this number of steps
        print(f"N = {size[0]}, D = {size[1]}: {name} is ready", flush=True)
    for name, seen in losses.items():
        for ours, theirs in zip(losses["engine"], seen, strict=True):
            if abs(theirs / ours - 1) > AGREEMENT:
                raise ValueError(f"{name} computes other losses than the engine: {seen}, {losses['engine']}")
    taken = {name: [] for name in children}  # type: dict[str, list[float]]
    for _ in range(rounds):
        for name, child in children.items():
            taken[name].append(1000 * child.ask("seconds")[0] / child.steps)
    for child in children.values():
        child.close()
    return {
        "n_context": size[0],
        "dim": size[1],
        "milliseconds": {name: statistics.median(values) for name, values in taken.items()},
        "ratio": {
            name: statistics.median(v / e for v, e in zip(values, taken["engine"], strict=True))
            for name, values in taken.items()
        },
    }


def two_cores(rounds: int) -> list[dict[str, float]]:
    """Seconds for 1, 2, 4, 8 equal runs of the engine on two cores, and on one."""
    children = [Child("engine", PAPER, steps_for("engine", PAPER), core) for core in (0, 1)]
    for child in children:
        child.ask("seconds")
    rows = []
    for runs in (1, 2, 4, 8):
        one, two = [], []
        for _ in range(rounds):
            begin = time.perf_counter()
            for _ in range(runs):
                children[0].ask("seconds")
            one.append(time.perf_counter() - begin)
            begin = time.perf_counter()
            for done in range(0, runs, 2):
                pair = children[: min(2, runs - done)]
                for child in pair:
                    child.start("seconds")
                for child in pair:
                    child.answer()
            two.append(time.perf_counter() - begin)
        speedup = statistics.median(a / b for a, b in zip(one, two, strict=True))
        rows.append({"runs": runs, "one_core": statistics.median(one), "two_cores": statistics.median(two)})
        rows[-1]["speedup"] = speedup
    for child in children:
        child.close()
    return rows


def ten_runs() -> dict[str, float]:
    """Seconds that the paper's ten runs take on two cores, from nothing to table, compiling included.

    Raises:
        ValueError: a run is not the committed one to the bit.
    """
    from icl_lib.engine import TrainingConfig
    from icl_lib.study import load_table, study

    with tempfile.TemporaryDirectory() as folder:
        begin = time.perf_counter()
        table = study([TrainingConfig.paper(seed) for seed in range(1, 11)], folder, workers=2)
        seconds = time.perf_counter() - begin
    committed = load_table(ROOT / "results" / "penalty").set_index("id").digest
    for run in table.itertuples():
        if run.digest != committed[run.id]:
            raise ValueError(f"run {run.id} has digest {run.digest}, committed is {committed[run.id]}")
    return {"runs": len(table), "workers": 2, "seconds": seconds}


def machine() -> dict[str, object]:
    """What it was measured on."""
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    models = {line.split(":")[1].strip() for line in info.splitlines() if line.startswith("model name")}
    versions = {}
    for package in ("numpy", "numba", "llvmlite", "torch", "jax", "jaxlib"):
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "processor": ", ".join(sorted(models)) or platform.processor(),
        "cores": os.cpu_count(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "versions": versions,
    }


def show(row: dict[str, object]) -> None:
    """Print what `compare` found."""
    for name, ratio in row["ratio"].items():  # type: ignore[attr-defined]
        print(f"  {name:24s}{row['milliseconds'][name]:10.3f} ms {ratio:8.2f}", flush=True)  # type: ignore[index]


def at(row: dict[str, int]) -> tuple[int, int]:
    """Where a row stands in the results: by D, then N."""
    return row["dim"], row["n_context"]


def keep(**found: object) -> None:
    """Write a part into the results file; a size replaces the same size."""
    kept = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    if "sizes" in found:
        (row,) = found["sizes"]  # type: ignore[misc]
        others = [r for r in kept.get("sizes", []) if at(r) != at(row)]
        found["sizes"] = sorted([*others, row], key=at)
    kept |= {"machine": machine(), "batch": BATCH, "rounds": ROUNDS, **found}
    RESULTS.write_text(json.dumps(kept, indent=1) + "\n")


def main() -> None:
    """Measure, print, and write each part into the results file as it is done, unless --quick."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--part", choices=["cores", "runs", "sizes"], help="measure this alone")
    options = parser.parse_args()
    if options.quick:
        show(compare(PAPER, 3))
        print(json.dumps(two_cores(3), indent=1))
        return
    if options.part in (None, "cores"):
        keep(cores=two_cores(ROUNDS))
    if options.part in (None, "runs"):
        keep(runs=ten_runs())
    if options.part in (None, "sizes"):
        for size in SIZES:
            row = compare(size, ROUNDS)
            show(row)
            keep(sizes=[row])


if __name__ == "__main__":
    main()
