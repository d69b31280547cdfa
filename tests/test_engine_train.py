"""Training runs: their settings, data, outcome, and going on after being stopped."""

import errno
import math
import os
import resource
import signal
import subprocess
import sys

import numpy as np
import pytest
from pydantic import ValidationError

from icl_lib import closed_form
from icl_lib.engine import CheckpointError, Trainer, TrainingConfig, train
from icl_lib.engine.data import STREAMS, TEST_ENTROPY, first_weights, stream
from icl_lib.engine.train import EARLY
from icl_lib.prompts import sample_tasks
from icl_lib.solvers import least_squares

SMALL = TrainingConfig(
    seed=7, n_context=5, n_train=40, n_validation=20, batch_size=16, dim=3, heads=1, layers=1, l1=1e-4,
    epochs=12, validate_every=3,
)  # fmt: skip


# -- settings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seed", -1),
        ("seed", 1.0),
        ("seed", 2**63),
        ("n_context", 2),
        ("n_train", 0),
        ("batch_size", 5001),
        ("epochs", True),
        ("l1", "1e-4"),
        ("l1", -1e-4),
        ("l1", math.nan),
        ("learning_rate", 0.0),
        ("learning_rate", math.inf),
        ("learning_rate_decay", 1.5),
        ("beta1", 1.0),
        ("eps", -1e-5),
        ("layer_norm", 1),
        ("optimiser", "Adam"),
        ("dtype", "float16"),
        ("target", "lse"),
        ("lambda", 1e-4),
    ],
)
def test_bad_settings_are_refused_by_name(field, value):
    with pytest.raises(ValidationError, match=field):
        TrainingConfig.model_validate({"seed": 1, field: value})


def test_config_is_frozen_and_every_field_has_a_reason():
    with pytest.raises(ValidationError, match="frozen"):
        SMALL.seed = 2  # type: ignore[misc]
    assert all(field.description for field in TrainingConfig.model_fields.values())


def test_run_ids_are_those_of_the_committed_runs():
    # These names are on disk: a change here renames every finished run.
    assert TrainingConfig(seed=1, l1=1e-4).id == "f8669dc03707bd8f"
    assert TrainingConfig(seed=1, l1=3e-5, epochs=300).id == "f83dd40b83b42801"


def test_id_sees_each_change_and_ignores_a_new_field_at_its_default():
    changes = {"seed": 8, "l1": 2e-5, "dim": 4, "shuffle": False, "target": "noisy", "dtype": "float64"}
    ids = {SMALL.id} | {SMALL.model_copy(update={name: value}).id for name, value in changes.items()}
    assert len(ids) == len(changes) + 1

    class Later(TrainingConfig):
        new: int = 3

    assert Later.model_validate(SMALL.model_dump()).id == SMALL.id
    assert Later.model_validate(SMALL.model_dump() | {"new": 4}).id != SMALL.id


# -- data ------------------------------------------------------------------------------------------


def test_every_purpose_has_its_own_stream():
    streams = [stream(1, purpose) for purpose in STREAMS] + [stream(1, "fresh", 1), stream(2, "train")]
    states = {tuple(sequence.generate_state(4)) for sequence in streams}
    assert len(states) == len(streams)


def test_no_config_can_draw_the_test_prompts():
    with pytest.raises(ValidationError, match="seed"):
        TrainingConfig(seed=TEST_ENTROPY)


def test_targets_are_what_the_config_says():
    for target, of in {
        "least_squares": lambda tasks: least_squares(tasks.prompts),
        "noisy": lambda tasks: tasks.intercept + tasks.slope * tasks.prompts.query + tasks.query_noise,
        "noiseless": lambda tasks: tasks.intercept + tasks.slope * tasks.prompts.query,
    }.items():
        config = SMALL.model_copy(update={"target": target, "query_std": 2.0, "noise_std": 0.5})
        tasks = sample_tasks(20, 5, seed=stream(7, "validation"), noise_std=0.5, query_std=2.0)
        data = Trainer(config).validation_records
        assert data.dtype == np.float32
        assert (data[:, -1] == of(tasks).astype(np.float32)).all()
        assert (data[:, :18].reshape(20, 6, 3) == tasks.prompts.tokens().astype(np.float32)).all()


def test_first_weights_fill_pytorch_s_range():
    config = TrainingConfig(seed=5, n_context=50, dim=8, layers=8, heads=8)
    theta, shapes = first_weights(config), config.architecture.shapes
    at = 0
    for name, fan_in in {"W_in": 3, "W1": 8, "W2": 8, "W3": 8, "W_out": 51 * 8}.items():
        size = int(np.prod(shapes[name]))
        part, at = theta[at : at + size] * np.sqrt(fan_in), at + size
        assert np.abs(part).max() <= 1 + 1e-6
        assert np.abs(part).max() > 0.85
        assert abs(part.mean()) < 4 / np.sqrt(3 * size)
    assert theta[-1] == 0  # b_out is not trained
    assert (first_weights(config.model_copy(update={"init_scale": 0.5})) == theta / 2).all()


def test_fresh_data_differs_in_each_epoch():
    trainer = Trainer(SMALL.model_copy(update={"fresh": True}))
    seen = []
    for epoch in (1, 2):
        trainer.epoch = epoch
        seen.append(trainer._epoch_data()[0])
    assert not np.isin(seen[0][:, -1], seen[1][:, -1]).any()
    assert "train_records" not in vars(trainer)


# -- outcome ---------------------------------------------------------------------------------------


def test_the_best_weights_are_kept():
    trainer = Trainer(SMALL)
    validated = {}
    for epoch in range(1, SMALL.epochs + 1):
        trainer.advance(epoch)
        validated[epoch] = trainer.weights.digest
    run = trainer.run()
    assert run.history.epoch.tolist() == [3, 6, 9, 12]
    assert run.best_epoch == run.history.epoch[run.history.validation.argmin()]
    assert run.weights.digest == validated[run.best_epoch]
    assert run.outcome == "finished"
    assert train(SMALL).weights.digest == run.weights.digest


def test_early_digest_is_of_the_weights_at_epoch_200():
    config = SMALL.model_copy(update={"epochs": EARLY + 1, "validate_every": 150})
    trainer = Trainer(config)
    trainer.advance(EARLY)
    assert train(config).early_digest == trainer.weights.digest != trainer.run().weights.digest
    assert train(SMALL).early_digest == ""


def test_divergence_is_an_outcome():
    run = train(SMALL.model_copy(update={"learning_rate": 1e30, "layer_norm": False}))
    assert run.outcome.startswith("diverged at epoch ")
    assert np.isfinite(run.weights.W_in).all()
    # It may also strike later: what was best until then is kept.
    trainer = Trainer(SMALL)
    trainer.advance(6)
    trainer.theta[0] = np.nan
    trainer.advance(12)
    assert trainer.run().outcome == "diverged at epoch 7"
    assert trainer.run().best_epoch in (3, 6)


def test_training_can_start_from_given_weights():
    start = closed_form(5, 2.0)
    config = TrainingConfig(
        seed=1, n_context=5, n_train=8, batch_size=8, n_validation=8, epochs=1, dtype="float64"
    )
    trainer = Trainer(config, start)
    assert all((trainer.weights.arrays()[name] == array).all() for name, array in start.arrays().items())
    scaled = Trainer(config.model_copy(update={"attention_scale": 0.25}), start)
    assert (scaled.weights.W2 == start.W2).all()
    assert (scaled.theta != trainer.theta).any()
    answer = scaled.error(scaled.validation_records, scaled.theta)
    assert np.isclose(answer, trainer.error(trainer.validation_records, trainer.theta), rtol=1e-3)
    with pytest.raises(ValueError, match="rows=5"):
        Trainer(config, closed_form(4, 2.0))


# -- stopping and going on -------------------------------------------------------------------------


@pytest.mark.parametrize("changes", [{}, {"fresh": True, "learning_rate_decay": 0.9}])
def test_a_resumed_run_ends_in_the_same_bits(tmp_path, changes):
    config = SMALL.model_copy(update=changes)
    whole = train(config)
    for stop in (1, 7, 11):
        first = Trainer(config)
        first.advance(stop)
        first.save(tmp_path / "run")
        again = train(config, checkpoint=tmp_path / "run")
        assert again.weights.digest == whole.weights.digest
        assert (again.history.validation == whole.history.validation).all()
        assert (again.best_epoch, again.validation) == (whole.best_epoch, whole.validation)


KILLED = """
import os, signal, sys
from icl_lib.engine import TrainingConfig, train
module = sys.modules["icl_lib.engine.train"]  # the package's own name `train` is the function
module.CHECKPOINT_SECONDS = 0
real, calls = getattr(os, sys.argv[3]), []
def deadly(*arguments):
    calls.append(1)
    if len(calls) == int(sys.argv[4]):
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments)
setattr(os, sys.argv[3], deadly)
train(TrainingConfig.model_validate_json(sys.argv[1]), checkpoint=sys.argv[2])
"""


def test_kill_9_while_writing_loses_nothing(tmp_path):
    # Each checkpoint calls fsync twice: on the file written aside, and on the folder after the rename.
    path = tmp_path / "run"
    for call, expected in ((3, 3), (2, 6)):
        command = [sys.executable, "-c", KILLED, SMALL.model_dump_json(), str(path), "fsync", str(call)]
        assert subprocess.run(command).returncode == -signal.SIGKILL
        trainer = Trainer(SMALL)
        trainer.load(path)  # whole, though the process died while it wrote
        assert trainer.epoch == expected
    assert train(SMALL, checkpoint=path).weights.digest == train(SMALL).weights.digest


def test_a_full_disk_is_told_and_leaves_the_last_checkpoint(tmp_path):
    path, trainer = tmp_path / "run", Trainer(SMALL)
    trainer.advance(3)
    trainer.save(path)
    kept = path.read_bytes()
    trainer.advance(6)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(kept) // 2, limits[1]))
    try:
        with pytest.raises(OSError, match=r"cannot write .*run") as caught:
            trainer.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.errno == errno.EFBIG
    assert path.read_bytes() == kept
    assert os.listdir(tmp_path) == ["run"]


def test_damaged_and_foreign_checkpoints_are_refused(tmp_path):
    path, trainer = tmp_path / "run", Trainer(SMALL)
    trainer.advance(1)
    trainer.save(path)
    good = path.read_bytes()
    changed = bytearray(good)
    changed[-9] ^= 1
    for content, why in {
        good[:-20]: "truncated",
        b"": "truncated",
        bytes(changed): "checksum",
        good.replace(b"checkpoint/1", b"checkpoint/9"): "checkpoint/9",
    }.items():
        path.write_bytes(content)
        with pytest.raises(CheckpointError, match=why):
            train(SMALL, checkpoint=path)
    path.write_bytes(good)
    other = SMALL.model_copy(update={"seed": 8})
    with pytest.raises(CheckpointError, match=rf"belongs to run {SMALL.id}.*expected {other.id}"):
        train(other, checkpoint=path)
    start = Trainer(other).weights
    with pytest.raises(CheckpointError, match="first weights differ"):
        train(SMALL, initial=start, checkpoint=path)
