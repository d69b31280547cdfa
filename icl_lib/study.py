"""Many training runs: each in its own file as it ends, one table and one file of weights for all.

A study lives in a folder: `runs/<id>.safetensors` holds a run's weights, history and table row, written
whole; `checkpoints/` holds what is under way. A run whose file is there is not run again, so a study that was
stopped, or that grew, is simply started once more. `table.csv` and `weights.safetensors` are made from these
files, and are all that needs keeping: the other files come back from these two.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import product
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
from joblib.externals.loky.process_executor import TerminatedWorkerError
from numpy.random import SeedSequence
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.progress import TimeRemainingColumn as TimeLeftColumn
from safetensors import safe_open
from safetensors.numpy import save

from icl_lib.engine import History, Run, Trainer, TrainingConfig, train
from icl_lib.engine.checkpoint import write_whole
from icl_lib.engine.data import TEST_ENTROPY, records
from icl_lib.weights import Weights

TEST_PROMPTS = 100_000  # a 1000-prompt error is uncertain by most of its own size, this one by a tenth
TEST_CHUNK = 10_000
DEATHS = 3  # of worker processes in a row, without a result, before a study gives up

Result = tuple[dict[str, object], dict[str, np.ndarray]]  # a table row, and weights and history as arrays


def read_configs(path: str | Path) -> list[TrainingConfig]:
    """The configs that a TOML file describes.

    Fields common to all stand under [fixed]. Each table [[setting]] changes some (without any, nothing is
    changed), and is run for every combination of the lists under [grid], the first varying slowest.

    Raises:
        FileNotFoundError: no such file.
        ValueError: not TOML, other tables than these, or a field that `TrainingConfig` refuses.
    """
    content = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    if unknown := set(content) - {"fixed", "setting", "grid"}:
        raise ValueError(f"{path} has {sorted(unknown)}, expected [fixed], [[setting]] and [grid] alone")
    grid = content.get("grid", {})
    if wrong := [name for name, values in grid.items() if not isinstance(values, list)]:
        raise ValueError(f"{path}: {wrong[0]} under [grid] is not a list; put single values under [fixed]")
    fixed = content.get("fixed", {})
    return [
        TrainingConfig.model_validate(fixed | setting | dict(zip(grid, values, strict=True)))
        for setting in content.get("setting", [{}])
        for values in product(*grid.values())
    ]


def measure_test_error(run: Run, count: int = TEST_PROMPTS) -> float:
    """Mean squared difference to the least squares answer on `count` new prompts, the same for every run.

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


def run_one(config: TrainingConfig, checkpoint: Path | None = None) -> Result:
    """Train and test a config.

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


def study(
    configs: Iterable[TrainingConfig],
    folder: str | Path,
    *,
    workers: int = 2,
    scheduler: str | None = None,
    progress: bool = True,
) -> pd.DataFrame:
    """Run every config whose result is not in `folder` yet, then write and return the table of all in it.

    Args:
        configs: what to train; the same config twice is run once.
        folder: where results go, made if missing.
        workers: processes on this machine; each run takes up its checkpoint if it was stopped.
        scheduler: address of a Dask scheduler ("tcp://host:8786"): run on its workers instead, which need
            this library; a run cut short begins again there.
        progress: show a bar with the time left.

    Returns:
        One row a run, in the order of `configs` first: id, every config field, outcome, digest, digest_200,
        best_epoch, validation_error, test_error. A run that failed has an outcome "failed: …" and no numbers;
        it is tried again next time.

    Raises:
        ImportError: a scheduler is given and Dask is not installed.
        RuntimeError: worker processes keep dying before any run ends.
        OSError: a result cannot be written.
    """
    folder = Path(folder)
    for name in ("runs", "checkpoints"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    _unpack(folder)
    wanted = {config.id: config for config in configs}
    pending = [config for config in wanted.values() if not _finished(folder, config.id)]
    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    with (
        Progress(*columns, TimeLeftColumn(), disable=not progress) as bar,
        _backend(scheduler, workers) as pool,
    ):
        task = bar.add_task("runs", total=len(pending))
        deaths = 0
        while pending:
            files = [None if scheduler else folder / "checkpoints" / config.id for config in pending]
            jobs = (joblib.delayed(run_one)(*job) for job in zip(pending, files, strict=True))
            try:
                for row, arrays in pool(jobs):
                    _keep(folder, row, arrays)
                    pending = [config for config in pending if config.id != row["id"]]
                    bar.advance(task)
                    deaths = 0
            except TerminatedWorkerError as error:  # killed from outside, as when memory is short
                deaths += 1
                if deaths == DEATHS:
                    raise RuntimeError(
                        f"{DEATHS} times in a row a worker process was killed before any run ended; "
                        "use fewer workers or a machine with more memory, then start the study again"
                    ) from error
    return collect(folder, wanted)


@contextmanager
def _backend(scheduler: str | None, workers: int) -> Iterator[joblib.Parallel]:
    if scheduler is None:
        yield joblib.Parallel(n_jobs=workers, return_as="generator_unordered")
        return
    try:
        from dask.distributed import Client
    except ImportError:
        raise ImportError("a scheduler needs Dask: pip install 'dask[distributed]' (see README.md)") from None
    with Client(scheduler), joblib.parallel_config(backend="dask"):
        yield joblib.Parallel(n_jobs=-1, return_as="generator_unordered")


def _keep(folder: Path, row: dict[str, object], arrays: dict[str, np.ndarray]) -> None:
    content = save(arrays, metadata={"row": json.dumps(row)})
    write_whole(folder / "runs" / f"{row['id']}.safetensors", content)
    (folder / "checkpoints" / str(row["id"])).unlink(missing_ok=True)


def _read(path: Path) -> Result:
    with safe_open(path, framework="numpy") as file:
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        return json.loads(file.metadata()["row"]), arrays


def _finished(folder: Path, name: str) -> bool:
    path = folder / "runs" / f"{name}.safetensors"
    return path.exists() and not str(_read(path)[0]["outcome"]).startswith("failed")


def _unpack(folder: Path) -> None:
    """Make the files of runs that only the folder's table and weights hold."""
    if not (folder / "table.csv").exists():
        return
    table = load_table(folder)
    table = table[table.digest.notna()].astype(object).where(table.notna(), None)
    with safe_open(folder / "weights.safetensors", framework="numpy") as file:
        parts = [name.split("/") for name in file.keys()]  # noqa: SIM118 (not a dict)
        for row in table.to_dict("records"):
            if not _finished(folder, row["id"]):
                arrays = {key: file.get_tensor(f"{name}/{key}") for name, key in parts if name == row["id"]}
                _keep(folder, row, arrays)


def collect(folder: str | Path, order: Iterable[str] = ()) -> pd.DataFrame:
    """Write `table.csv` and `weights.safetensors` from the runs in `folder`; return the table.

    Args:
        folder: a study's folder.
        order: ids that come first; all others follow by id.
    """
    folder = Path(folder)
    results = {path.stem: _read(path) for path in sorted((folder / "runs").glob("*.safetensors"))}
    ids = [name for name in order if name in results]
    ids += [name for name in results if name not in set(ids)]
    table = pd.DataFrame([results[name][0] for name in ids])
    write_whole(folder / "table.csv", table.to_csv(index=False).encode())
    arrays = {f"{name}/{key}": value for name in ids for key, value in results[name][1].items()}
    write_whole(folder / "weights.safetensors", save(arrays))
    return table


def load_table(folder: str | Path) -> pd.DataFrame:
    """A study's table, see `study`; what a failed run lacks is NaN.

    Raises:
        FileNotFoundError: no study there.
    """
    return pd.read_csv(Path(folder) / "table.csv", keep_default_na=False, na_values=["nan", ""])


def load_study(folder: str | Path) -> tuple[pd.DataFrame, dict[str, Weights]]:
    """A study's table, and the weights of each run by its id.

    Raises:
        FileNotFoundError: no study there.
        ValueError: weights that do not match the table's digest.
    """
    table, weights = load_table(folder), {}
    with safe_open(Path(folder) / "weights.safetensors", framework="numpy") as file:
        for row in table[table.digest.notna()].itertuples():
            arrays = {
                name: file.get_tensor(f"{row.id}/{name}") for name in ("W_in", "W1", "W2", "W3", "W_out")
            }
            b_out = float(file.get_tensor(f"{row.id}/b_out"))
            weights[row.id] = Weights(**arrays, b_out=b_out, layer_norm=row.layer_norm, eps=row.eps)
            if weights[row.id].digest != row.digest:
                raise ValueError(
                    f"weights of run {row.id} do not match the table's digest; restore both files"
                )
    return table, weights


def load_history(folder: str | Path, name: str) -> History:
    """The curves of run `name`, float32."""
    with safe_open(Path(folder) / "weights.safetensors", framework="numpy") as file:
        epoch, *curves = file.get_tensor(f"{name}/history")
    return History(epoch.astype(np.int64), *curves)


def config_of(row: pd.Series) -> TrainingConfig:
    """The config behind a row of a study's table; a field newer than the table has its default."""
    names = [name for name in TrainingConfig.model_fields if name in row.index]
    return TrainingConfig.model_validate(row[names].to_dict())
