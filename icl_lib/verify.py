"""Runs of a study, trained again: are the weights the same, to the bit?"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import joblib

from icl_lib.engine import EARLY, Trainer, TrainingConfig, train
from icl_lib.study import config_of, load_table


def verify(
    folder: str | Path, ids: Iterable[str] | None = None, *, full: bool = False, workers: int = 2
) -> Iterator[tuple[str, str, str]]:
    """Train runs of a study again; yield each one's id, the digest in the table and the one found.

    Args:
        folder: where the study's table is.
        ids: which runs; None is all that have such a digest.
        full: to the last epoch, and compare the weights kept; otherwise to epoch 200, and compare those
            reached.
        workers: processes on this machine.

    Raises:
        FileNotFoundError: no study there.
        ValueError: an id that the table lacks or has no digest for.
    """
    column = "digest" if full else "digest_200"
    table = load_table(folder).set_index("id", drop=False)
    table = table[table[column].notna()]
    names = list(table.index) if ids is None else list(ids)
    if missing := set(names) - set(table.index):
        raise ValueError(
            f"{folder} has no {column} of run {', '.join(sorted(missing))}; its table lists the runs"
        )
    jobs = (joblib.delayed(_digest)(config_of(table.loc[name]), full) for name in names)
    found = joblib.Parallel(n_jobs=workers, return_as="generator")(jobs)
    for name, digest in zip(names, found, strict=True):
        yield name, table.loc[name, column], digest


def _digest(config: TrainingConfig, full: bool) -> str:
    if full:
        return train(config).weights.digest
    trainer = Trainer(config)
    trainer.advance(EARLY)
    return trainer.early_digest
