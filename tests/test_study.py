"""Studies: nothing is run twice, nothing finished is lost, and what is kept can be checked."""

import os
import signal

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError
from typer.testing import CliRunner

from icl_lib import least_squares, sample_prompts
from icl_lib import study as module
from icl_lib.cli import app
from icl_lib.engine import EARLY, Trainer, TrainingConfig, train
from icl_lib.engine.checkpoint import write_whole
from icl_lib.study import (
    collect,
    config_of,
    load_history,
    load_study,
    load_table,
    measure_test_error,
    read_configs,
    run_one,
    study,
)
from icl_lib.verify import verify

FIELDS = {
    "n_context": 5, "n_train": 16, "n_validation": 8, "batch_size": 16, "dim": 2, "heads": 1, "layers": 1,
    "epochs": 2, "validate_every": 1,
}  # fmt: skip


def small(seed, **changes):
    return TrainingConfig.model_validate({"seed": seed} | FIELDS | changes)


CONFIGS = [small(3), small(1), small(2)]
LONG = small(4, epochs=EARLY + 1, validate_every=100)


@pytest.fixture(autouse=True)
def few_test_prompts(monkeypatch):
    monkeypatch.setattr(measure_test_error, "__defaults__", (200,))


@pytest.fixture
def folder(tmp_path):
    study([*CONFIGS, LONG], tmp_path, workers=1, progress=False)
    return tmp_path


def test_table_and_weights_are_those_of_the_runs(folder):
    table, weights = load_study(folder)
    assert table.id.tolist() == [config.id for config in (*CONFIGS, LONG)]
    for config, (_, row) in zip((*CONFIGS, LONG), table.iterrows(), strict=True):
        run = train(config)
        assert config_of(row) == config
        assert row.digest == run.weights.digest == weights[config.id].digest
        assert (row.outcome, row.best_epoch) == ("finished", run.best_epoch)
        assert row.validation_error == run.validation
        assert row.test_error == measure_test_error(run)
        history = load_history(folder, config.id)
        assert np.allclose(history.validation, run.history.validation, rtol=1e-6)
        assert (history.epoch == run.history.epoch).all()
    assert table.digest_200.notna().tolist() == [False, False, False, True]
    assert sorted(os.listdir(folder / "checkpoints")) == []


def test_test_error_is_the_mean_square_to_least_squares():
    run = train(CONFIGS[0].model_copy(update={"target": "noisy", "noise_std": 1.0}))
    prompts = sample_prompts(100_000, 5, seed=11, noise_std=1.0)
    expected = ((run.weights.predict(prompts) - least_squares(prompts)) ** 2).mean()
    assert np.isclose(measure_test_error(run, 100_000), expected, rtol=0.1)
    # 15,000 prompts are those of the first chunk and half of the second, each with its weight.
    whole, both = measure_test_error(run, 10_000), measure_test_error(run, 15_000)
    assert whole != both
    assert np.isclose(whole, both, rtol=0.2)


def test_finished_runs_are_skipped(folder, monkeypatch):
    ran = []

    def recorded(config, path):
        ran.append(config.seed)
        return run_one(config, path)

    monkeypatch.setattr(module, "run_one", recorded)
    more = small(9)
    table = study([more, *CONFIGS, more], folder, workers=1, progress=False)
    assert ran == [9]
    assert table.seed.tolist() == [9, 3, 1, 2, 4]


def test_a_study_goes_on_from_its_table_and_weights(folder, tmp_path_factory, monkeypatch):
    kept = tmp_path_factory.mktemp("kept")
    for name in ("table.csv", "weights.safetensors"):
        (kept / name).write_bytes((folder / name).read_bytes())
    ran = []

    def recorded(config, path):
        ran.append(config.seed)
        return run_one(config, path)

    monkeypatch.setattr(module, "run_one", recorded)
    study([*CONFIGS, LONG], kept, workers=1, progress=False)
    assert ran == []
    for name in ("table.csv", "weights.safetensors"):
        assert (kept / name).read_bytes() == (folder / name).read_bytes()
    study([small(9), *CONFIGS, LONG], kept, workers=1, progress=False)
    assert ran == [9]


def test_a_failed_run_loses_no_other_and_is_tried_again(tmp_path, monkeypatch):
    def failing(config, **rest):
        if config.seed == 1:
            raise MemoryError("no room")
        return train(config, **rest)

    monkeypatch.setattr(module, "train", failing)
    table = study(CONFIGS, tmp_path, workers=1, progress=False)
    assert table.outcome.tolist() == ["finished", "failed: MemoryError: no room", "finished"]
    assert set(load_study(tmp_path)[1]) == {CONFIGS[0].id, CONFIGS[2].id}
    monkeypatch.undo()
    table = study(CONFIGS, tmp_path, workers=1, progress=False)
    assert table.outcome.tolist() == ["finished"] * 3


def test_a_stopped_run_is_taken_up(tmp_path, monkeypatch):
    (tmp_path / "checkpoints").mkdir()
    trainer = Trainer(LONG)
    trainer.advance(150)
    trainer.save(tmp_path / "checkpoints" / LONG.id)
    epochs, advance = [], Trainer.advance

    def recorded(self, epoch):
        epochs.append(self.epoch)
        advance(self, epoch)

    monkeypatch.setattr(Trainer, "advance", recorded)
    table = study([LONG], tmp_path, workers=1, progress=False)
    assert epochs[0] == 150
    assert table.digest[0] == train(LONG).weights.digest


def dying_once(config, path):
    """Like `run_one`, but the first worker to come to seed 1 is killed."""
    mark = path.parent / "died"
    if config.seed == 1 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return {"id": config.id, "seed": config.seed, "outcome": "finished", "digest": None}, {}


def always_dying(config, path):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.filterwarnings("ignore:A worker stopped")
def test_a_killed_worker_loses_no_run(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "run_one", dying_once)
    table = study(CONFIGS, tmp_path, workers=2, progress=False)
    assert table.outcome.tolist() == ["finished"] * 3
    assert (tmp_path / "checkpoints" / "died").exists()


@pytest.mark.filterwarnings("ignore:A worker stopped")
def test_workers_that_only_die_end_the_study(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "run_one", always_dying)
    with pytest.raises(RuntimeError, match="fewer workers"):
        study(CONFIGS, tmp_path, workers=2, progress=False)


def test_verify_tells_changed_runs(folder):
    assert [(name, expected == found) for name, expected, found in verify(folder, workers=1)] == [
        (LONG.id, True)
    ]
    assert all(expected == found for _, expected, found in verify(folder, full=True, workers=1))
    table = load_table(folder)
    table.loc[0, "learning_rate"] *= 1.001
    write_whole(folder / "table.csv", table.to_csv(index=False).encode())
    checked = {name: expected == found for name, expected, found in verify(folder, full=True, workers=1)}
    assert list(checked.values()) == [False, True, True, True]
    with pytest.raises(ValueError, match="no digest_200 of run nobody"):
        list(verify(folder, ["nobody"]))


def test_changed_weights_are_refused(folder):
    table = load_table(folder)
    table.loc[1, "digest"] = table.loc[0, "digest"]
    write_whole(folder / "table.csv", table.to_csv(index=False).encode())
    with pytest.raises(ValueError, match=f"run {CONFIGS[1].id} do not match"):
        load_study(folder)


def test_a_table_older_than_a_field_reads_as_its_default():
    row = pd.Series({"id": "x", **CONFIGS[0].model_dump()}).drop("momentum")
    assert config_of(row) == CONFIGS[0]


def test_runs_of_different_sizes_share_a_file(tmp_path):
    wide = small(1, n_context=6)
    study([CONFIGS[1], wide], tmp_path, workers=1, progress=False)
    rows = [weights.architecture.rows for weights in load_study(tmp_path)[1].values()]
    assert rows == [6, 7]
    assert collect(tmp_path).id.tolist() == sorted([CONFIGS[1].id, wide.id])


def test_toml_describes_a_grid(tmp_path):
    file = tmp_path / "study.toml"
    file.write_text("[fixed]\nepochs = 7\n[grid]\nl1 = [0.0, 1e-4]\nseed = [1, 2]\n")
    configs = read_configs(file)
    assert [(c.l1, c.seed) for c in configs] == [(0.0, 1), (0.0, 2), (1e-4, 1), (1e-4, 2)]
    assert {c.epochs for c in configs} == {7}
    for text, why in {
        "[grid]\nseed = 1\n": "seed under .grid. is not a list",
        "[gird]\nseed = [1]\n": "gird",
        "seed = ": "Invalid value",
        "[grid]\nsead = [1]\n": "sead",
    }.items():
        file.write_text(text)
        with pytest.raises((ValueError, ValidationError), match=why):
            read_configs(file)


def test_a_scheduler_without_dask_is_told(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "dask.distributed", None)
    with pytest.raises(ImportError, match="pip install"):
        study(CONFIGS, tmp_path, scheduler="tcp://127.0.0.1:1", progress=False)


# -- the command line ------------------------------------------------------------------------------


def test_commands_train_and_verify(tmp_path):
    settings = [word for name, value in FIELDS.items() for word in ("--set", f"{name}={value}")]
    out = tmp_path / "weights.safetensors"
    done = CliRunner().invoke(app, ["train", str(out), "--seed", "3", "--set", "l1=0.0", *settings])
    assert done.exit_code == 0, done.output
    assert train(CONFIGS[0]).weights.digest in done.output
    file, folder = tmp_path / "study.toml", tmp_path / "study"
    file.write_text("[fixed]\n" + "".join(f"{k} = {v}\n" for k, v in FIELDS.items()) + "[grid]\nseed = [3]\n")
    done = CliRunner().invoke(app, ["study", str(file), str(folder), "--workers", "1"])
    assert done.exit_code == 0, done.output
    done = CliRunner().invoke(app, ["verify", str(folder), CONFIGS[0].id, "--full", "--workers", "1"])
    assert done.exit_code == 0, done.output
    assert "same" in done.output


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["train", "w", "--set", "l1"], "FIELD=VALUE"),
        (["train", "w", "--set", "dim=0"], "dim"),
        (["train", "w", "--set", "lamda=1"], "lamda"),
        (["study", "missing.toml", "out"], "missing.toml"),
        (["verify", "nowhere"], "nowhere"),
    ],
)
def test_bad_commands_are_told_and_fail(tmp_path, monkeypatch, arguments, why):
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 1
    assert why in done.output.replace("\n", "")


def test_verify_fails_on_another_digest(folder):
    table = load_table(folder)
    table.loc[3, "digest_200"] = "0" * 64
    write_whole(folder / "table.csv", table.to_csv(index=False).encode())
    done = CliRunner().invoke(app, ["verify", str(folder), "--workers", "1"])
    assert done.exit_code == 1
    assert "DIFFERENT" in done.output
