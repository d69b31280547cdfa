"""The commands that train and measure: `icl train`, `icl study`, `icl labels`, `icl verify`, `icl bench`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Annotated

import typer
from pydantic import ValidationError
from rich.console import Console

app = typer.Typer()
console = Console()
errors = Console(stderr=True)


def stop(message: object) -> typer.Exit:
    """What to raise to end with this message in red and exit code 1."""
    errors.print(str(message), style="red", markup=False, highlight=False)
    return typer.Exit(1)


def _changes(pairs: list[str]) -> dict[str, object]:
    """Field=value pairs; a value is JSON (1e-4, true) or else a word (noisy)."""
    changes: dict[str, object] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals:
            raise ValueError(f"--set {pair}: expected FIELD=VALUE, such as --set l1=1e-4")
        try:
            changes[name] = json.loads(value)
        except json.JSONDecodeError:
            changes[name] = value
    return changes


@app.command("train")
def train_command(
    out: Annotated[Path, typer.Argument(help="Where to write the weights (safetensors).")],
    seed: Annotated[int, typer.Option(help="Seed of data, first weights and shuffles.")] = 1,
    changes: Annotated[
        list[str] | None, typer.Option("--set", help="FIELD=VALUE of TrainingConfig; may be repeated.")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Go on from this file if it exists; keep it up to date.")
    ] = None,
) -> None:
    """Train one network as the paper does, or with single settings changed."""
    from icl_lib.engine import CheckpointError, TrainingConfig, train

    try:
        config = TrainingConfig.paper(seed, **_changes(changes or []))
        run = train(config, checkpoint=checkpoint, progress=True)
        run.weights.save(out)
    except (ValidationError, ValueError, CheckpointError, OSError) as error:
        raise stop(error) from None
    console.print(
        f"{run.id} {run.outcome}; best at epoch {run.best_epoch}: validation error {run.validation:.5f}"
    )
    console.print(f"digest {run.weights.digest}", soft_wrap=True)


@app.command("study")
def study_command(
    file: Annotated[Path, typer.Argument(help="TOML with the tables fixed, setting and grid.")],
    folder: Annotated[Path, typer.Argument(help="Where results go; finished runs there are kept.")],
    workers: Annotated[int, typer.Option(min=1, help="Processes on this machine.")] = 2,
    scheduler: Annotated[
        str | None, typer.Option(help="Dask scheduler to run on instead, such as tcp://host:8786.")
    ] = None,
) -> None:
    """Train every network of a study that is not trained yet; write its table and weights."""
    from icl_lib.study import read_configs, study

    try:
        table = study(read_configs(file), folder, workers=workers, scheduler=scheduler)
    except (ValueError, OSError, RuntimeError, ImportError) as error:
        raise stop(error) from None
    failed = table[table.outcome.str.startswith("failed")]
    if len(failed):
        raise stop("\n".join(f"{row.id} {row.outcome}" for row in failed.itertuples()))
    console.print(f"{len(table)} runs in {folder / 'table.csv'}", soft_wrap=True)


@app.command("labels")
def labels_command() -> None:
    """Measure which layer norm divides in the full-length runs that results/labels.csv lacks."""
    from icl_lib.labels import TABLE, update_table

    try:
        table = update_table()
    except (FileNotFoundError, ValueError) as error:
        raise stop(error) from None
    console.print(f"{len(table)} runs in {TABLE}", soft_wrap=True)


@app.command("verify")
def verify_command(
    folder: Annotated[Path, typer.Argument(help="A study's folder, with its table.csv.")],
    ids: Annotated[list[str] | None, typer.Argument(help="Runs to check. [default: all]")] = None,
    full: Annotated[bool, typer.Option(help="Train to the last epoch; otherwise to epoch 200.")] = False,
    workers: Annotated[int, typer.Option(min=1, help="Processes on this machine.")] = 2,
) -> None:
    """Train the runs of a study again and compare the digests of their weights."""
    from icl_lib.verify import verify

    wrong = 0
    try:
        for name, expected, found in verify(folder, ids, full=full, workers=workers):
            wrong += expected != found
            verdict = "same" if expected == found else f"DIFFERENT: {found}"
            console.print(f"{name} {expected} {verdict}", soft_wrap=True, highlight=False)
    except (ValueError, OSError) as error:
        raise stop(error) from None
    if wrong:
        raise stop(f"{wrong} runs gave other weights than the table says")


@app.command("bench")
def bench_command(
    quick: Annotated[
        bool, typer.Option(help="Few repetitions: to see that it works, not to measure.")
    ] = False,
) -> None:
    """Measure the engine's speed against PyTorch and JAX, in a checkout."""
    script = Path("benchmarks") / "speed.py"
    if not script.exists():
        raise stop(f"{script} is not here: run this at the top of a checkout")
    raise typer.Exit(
        subprocess.run([sys.executable, str(script), *(["--quick"] if quick else [])]).returncode
    )
