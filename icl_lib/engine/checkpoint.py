"""State of a run on disk: a kill at any moment leaves the old file or the new one, never half of one."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

FORMAT = "icl_lib.engine checkpoint/1"


class CheckpointError(ValueError):
    """A checkpoint that cannot be used; the message says why and what to do."""


def write_whole(path: Path, content: bytes) -> None:
    """Write aside, flush to the disk, rename.

    Raises:
        OSError: the folder is missing or the disk is full; `path` is left as it was.
    """
    aside = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with aside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(path)
        # The rename itself must reach the disk too.
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise OSError(
            error.errno, f"cannot write {path}: {error.strerror}; free some space or give another folder"
        ) from error
    finally:
        aside.unlink(missing_ok=True)


def _checksum(arrays: dict[str, np.ndarray], meta: dict[str, Any]) -> str:
    hasher = hashlib.sha256(json.dumps(meta, sort_keys=True).encode())
    for name in sorted(arrays):
        hasher.update(f"{name} {arrays[name].dtype} {arrays[name].shape}".encode())
        hasher.update(arrays[name].tobytes())
    return hasher.hexdigest()


def save_checkpoint(path: Path, arrays: dict[str, np.ndarray], meta: dict[str, Any], key: str) -> None:
    """Write arrays and JSON-able `meta` of the run that `key` names, with a checksum over all of it.

    Raises:
        OSError: see `write_whole`.
    """
    meta = meta | {"key": key}
    header = {"format": FORMAT, "meta": json.dumps(meta, sort_keys=True), "checksum": _checksum(arrays, meta)}
    write_whole(path, save(arrays, metadata=header))


def load_checkpoint(path: Path, key: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Read what `save_checkpoint` wrote for the run that `key` names.

    Raises:
        CheckpointError: truncated, changed after writing, another program's file or another run's.
    """
    again = "delete it to train from the start"
    try:
        with safe_open(path, framework="numpy") as file:
            header = file.metadata() or {}
            arrays = {name: np.array(file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118 (not a dict)
    except SafetensorError as error:
        raise CheckpointError(f"{path} is truncated or not a checkpoint ({error}); {again}") from error
    if header.get("format") != FORMAT:
        raise CheckpointError(f"{path} has format {header.get('format')!r}, expected {FORMAT!r}; {again}")
    meta = json.loads(header["meta"])
    if _checksum(arrays, meta) != header.get("checksum"):
        raise CheckpointError(
            f"{path} does not match its own checksum, it was changed after writing; {again}"
        )
    if (found := meta.pop("key")) != key:
        raise CheckpointError(
            f"{path} belongs to run {found}, expected {key}: its config or first weights differ; "
            f"give each run its own checkpoint, or {again}"
        )
    return arrays, meta
