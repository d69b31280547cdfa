"""Many training runs: each in its own file as it ends, one table and one file of weights for all.

A study lives in a folder: `runs/<id>.safetensors` holds a run's weights, history and table row, written whole;
`checkpoints/` what is under way. A run whose file is there is not run again, so a study that was stopped, or grew, is
simply started once more. `table.csv` and `weights.safetensors` are made from these files and are all that is kept.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
from joblib.externals.loky.process_executor import TerminatedWorkerError
from numpy.random import SeedSequence
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from safetensors import safe_open
from safetensors.numpy import save

from icl_lib.engine import Run, Trainer, TrainingConfig, train
from icl_lib.engine.checkpoint import write_whole
from icl_lib.engine.data import TEST_ENTROPY, records
from icl_lib.weights import Weights

TEST_PROMPTS = 100_000  # a 1000-prompt error has a relative standard deviation near 0.5, this one near 0.05
TEST_CHUNK = 10_000


def measure_test_error(run: Run, count: int = TEST_PROMPTS) -> float:
    """Mean squared difference to the least squares answer on `count` new prompts, the same ones for every run.

    Computed in the engine's arithmetic: the same bits on every processor.
    """
    config = run.config.model_copy(update={"target": "least_squares"})
    network = Trainer(config, run.weights)
    total = 0.0
    for chunk in range(0, count, TEST_CHUNK):
        size = min(TEST_CHUNK, count - chunk)
        data = records(config, size, SeedSequence(TEST_ENTROPY, spawn_key=(chunk // TEST_CHUNK,)))
        total += size * network.error(data, network.theta)
    return total / count


def run_one(config: TrainingConfig, checkpoint: Path | None = None) -> tuple[dict[str, object], dict[str, np.ndarray]]:
    """Train a config; its table row, and its weights and history as arrays.

    An error does not escape: it becomes the row's outcome, so that the study's other runs go on.
    """
    row: dict[str, object] = {"id": config.id, **config.model_dump()}
    try:
        run = train(config, checkpoint=checkpoint)
        row |= {
            "outcome": run.outcome,
            "digest": run.weights.digest,
            "digest_200": run.early_digest,
            "best_epoch": run.best_epoch,
            "validation_error": run.validation,
            "test_error": measure_test_error(run),
        }
    except Exception as error:
        return row | {"outcome": f"failed: {type(error).__name__}: {error}"}, {}
    history = run.history
    curves = np.array([history.epoch, history.loss, history.penalty, history.validation], dtype=np.float32)
    return row, run.weights.arrays() | {"history": curves}


def _read(path: Path) -> tuple[dict[str, object], dict[str, np.ndarray]]:
    with safe_open(path, framework="numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        return json.loads(file.metadata()["row"]), arrays


def _results(folder: Path) -> dict[str, tuple[dict[str, object], dict[str, np.ndarray]]]:
    return {path.stem: _read(path) for path in sorted((folder / "runs").glob("*.safetensors"))}


def study(
    configs: Iterable[TrainingConfig],
    folder: str | Path,
    *,
    workers: int = 2,
    scheduler: str | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Run every config whose result is not in `folder` yet; then write and return the table of all that are.

    Args:
        configs: what to train; the same config twice is run once.
        folder: where results go, made if missing.
        workers: processes on this machine.
        scheduler: address of a Dask scheduler ("tcp://host:8786") to run on its workers instead; they need this
            library, and runs cut short start again rather than resume.
        progress: show a bar with the time left.

    Returns:
        One row a run, in order of `configs` first: id, every config field, outcome, digest, digest_200, best_epoch,
        validation_error, test_error.

    Raises:
        RuntimeError: worker processes keep dying (no memory?) before any run ends.
        OSError: a result cannot be written.
    """
    folder = Path(folder)
    for name in ("runs", "checkpoints"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    wanted = {config.id: config for config in configs}
    deaths = 0
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with Progress(*columns, TimeRemainingColumn(), disable=not progress) as bar, _backend(scheduler):
        task = bar.add_task("runs", total=len(wanted))
        while pending := [c for c in wanted.values() if not _finished(folder, c.id)]:
            bar.update(task, completed=len(wanted) - len(pending))
            files = {c.id: None if scheduler else folder / "checkpoints" / c.id for c in pending}
            jobs = (joblib.delayed(run_one)(config, files[config.id]) for config in pending)
            parallel = joblib.Parallel(n_jobs=workers if scheduler is None else -1, return_as="generator_unordered")
            try:
                for row, arrays in parallel(jobs):
                    name = str(row["id"])
                    content = save(arrays, metadata={"row": json.dumps(row)})
                    write_whole(folder / "runs" / f"{name}.safetensors", content)
                    (folder / "checkpoints" / name).unlink(missing_ok=True)
                    bar.advance(task)
                    deaths = 0
            except TerminatedWorkerError as error:
                deaths += 1
                if deaths == 3:
                    raise RuntimeError(
                        "three times in a row a worker process was killed before any run ended; "
                        "use fewer workers or a machine with more memory, then start the study again"
                    ) from error
                continue
            break
    return collect(folder, list(wanted))


def _finished(folder: Path, name: str) -> bool:
    path = folder / "runs" / f"{name}.safetensors"
    return path.exists() and not str(_read(path)[0]["outcome"]).startswith("failed")


def _backend(scheduler: str | None) -> AbstractContextManager[object]:
    if scheduler is None:
        return nullcontext()
    from dask.distributed import Client  # the optional extra `cluster`

    Client(scheduler)
    return joblib.parallel_config(backend="dask")


def collect(folder: str | Path, order: Iterable[str] = ()) -> pd.DataFrame:
    """Write `table.csv` and `weights.safetensors` from the runs in `folder`; return the table.

    Args:
        folder: a study's folder.
        order: ids that come first; all others follow by id.
    """
    folder = Path(folder)
    results = _results(folder)
    ids = [name for name in order if name in results]
    ids += [name for name in results if name not in set(ids)]
    table = pd.DataFrame([results[name][0] for name in ids])
    write_whole(folder / "table.csv", table.to_csv(index=False).encode())
    arrays = {f"{name}/{key}": value for name in ids for key, value in results[name][1].items()}
    write_whole(folder / "weights.safetensors", save(arrays))
    return table


def load_study(folder: str | Path) -> tuple[pd.DataFrame, dict[str, Weights]]:
    """The table and the weights by run id of a study, from its two files.

    Raises:
        FileNotFoundError: no study there.
        ValueError: weights that do not match the table's digest.
    """
    folder = Path(folder)
    table = pd.read_csv(folder / "table.csv", keep_default_na=False, na_values=["nan", ""])
    weights = {}
    with safe_open(folder / "weights.safetensors", framework="numpy") as file:
        for row in table[table.digest.notna()].itertuples():
            arrays = {name: file.get_tensor(f"{row.id}/{name}") for name in ("W_in", "W1", "W2", "W3", "W_out")}
            b_out = float(file.get_tensor(f"{row.id}/b_out"))
            weights[row.id] = Weights(**arrays, b_out=b_out, layer_norm=row.layer_norm, eps=row.eps)
            if weights[row.id].digest != row.digest:
                raise ValueError(f"weights of run {row.id} do not match the table's digest; restore both files")
    return table, weights
