"""Weights: what they accept, how they are stored, and how a bad file is told."""

import json
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load, save

from icl_lib import Weights, WeightsFileError, closed_form, sample_prompts


@pytest.fixture
def weights():
    return closed_form(5, 2.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_round_trip_keeps_every_bit(tmp_path, weights, dtype):
    w = Weights(
        **{k: v.astype(dtype) for k, v in weights.arrays().items() if k != "b_out"}, b_out=0.25, eps=1e-5
    )
    w.save(tmp_path / "w.safetensors")
    back = Weights.load(tmp_path / "w.safetensors")
    assert back.digest == w.digest
    assert back.dtype == dtype
    assert (back.eps, back.b_out, back.layer_norm) == (1e-5, 0.25, True)
    assert [p.name for p in tmp_path.iterdir()] == ["w.safetensors"]


def test_digest_sees_every_part(weights):
    seen = {weights.digest}
    for change in ({"eps": 1e-5}, {"layer_norm": False}, {"b_out": 1.0}):
        seen.add(replace(weights, **change).digest)
    for name in ("W_in", "W1", "W2", "W3", "W_out"):
        array = getattr(weights, name).copy()
        array.flat[0] = np.nextafter(array.flat[0], 9)
        seen.add(replace(weights, **{name: array}).digest)
    assert len(seen) == 9


def test_torch_round_trip(weights):
    p = sample_prompts(20, 5, seed=1)
    module = weights.to_torch(eps=1e-5)
    back = Weights.from_torch(module)
    assert back.eps == 1e-5
    assert (back.predict(p) == weights.predict(p, eps=1e-5)).all()


def test_arrays_are_frozen(weights):
    with pytest.raises(ValueError, match="read-only"):
        weights.W_in[0, 0] = 1


@pytest.mark.usefixtures("unchecked")
@pytest.mark.usefixtures("unchecked")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"W2": np.zeros((2, 2, 4, 3))}, "W2 has shape"),
        ({"W_out": np.zeros((6, 3))}, "W_out has shape"),
        ({"W_in": np.zeros(3)}, "W_in, W1, W_out have shapes"),
        ({"W3": np.full((2, 2, 4, 4), np.nan)}, "W3 has an entry that is NaN"),
        ({"W1": np.zeros((2, 2, 4, 4), np.float32)}, "W1 has dtype float32, expected float64"),
        ({"W_in": np.zeros((4, 3), int)}, "W_in has dtype int64"),
        ({"eps": -1.0}, "eps is -1"),
        ({"b_out": float("nan")}, "b_out has an entry that is NaN"),
    ],
)
def test_bad_weights_are_named(weights, change, message):
    with pytest.raises(ValueError, match=message):
        replace(weights, **change)


def test_prompts_of_another_length_are_refused(weights):
    with pytest.raises(ValueError, match="N = 5 context points"):
        weights.predict(sample_prompts(2, 6, seed=0))


def test_division_by_zero_spread_is_told(weights):
    p = sample_prompts(3, 5, seed=0)
    flat = type(p)(np.zeros((3, 5)), p.y, np.zeros(3))
    with pytest.raises(ValueError, match="not finite with eps = 0"):
        weights.predict(flat)
    assert np.isfinite(weights.predict(flat, eps=1e-5)).all()


def damaged(data, kind):
    arrays = load(data)
    size = int.from_bytes(data[:8], "little")
    meta = json.loads(data[8 : 8 + size])["__metadata__"]
    if kind == "truncated":
        return data[:-10]
    if kind == "text":
        return b"not a weights file at all" * 10
    if kind == "foreign":
        return save(arrays, metadata={"format": "pt"})
    if kind == "shape":
        return save(arrays | {"W_out": np.zeros((9, 4))}, metadata=meta)
    if kind == "missing":
        return save({k: v for k, v in arrays.items() if k != "W2"}, metadata=meta)
    if kind == "nan":
        return save(arrays | {"W_in": np.full((4, 3), np.nan)}, metadata=meta)
    changed = arrays["W_in"].copy()
    changed[0, 0] += 1
    return save(arrays | {"W_in": changed}, metadata=meta)


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("truncated", "truncated, corrupt"),
        ("text", "truncated, corrupt or not a safetensors file"),
        ("foreign", "written by another program"),
        ("shape", "its arrays have shapes"),
        ("missing", "its arrays have shapes"),
        ("nan", "NaN"),
        ("changed", "does not match its own digest"),
    ],
)
def test_a_bad_file_says_what_is_wrong(tmp_path, weights, kind, message):
    path = tmp_path / "w.safetensors"
    weights.save(path)
    path.write_bytes(damaged(path.read_bytes(), kind))
    with pytest.raises(WeightsFileError, match=message):
        Weights.load(path)


def test_a_full_disk_leaves_the_old_file(tmp_path, weights, monkeypatch):
    path = tmp_path / "w.safetensors"
    weights.save(path)

    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("icl_lib.weights.os.fsync", full)
    with pytest.raises(OSError, match="No space left"):
        replace(weights, eps=1.0).save(path)
    assert Weights.load(path).digest == weights.digest
    assert [p.name for p in tmp_path.iterdir()] == ["w.safetensors"]


def test_no_file_is_its_own_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        Weights.load(tmp_path / "none.safetensors")
