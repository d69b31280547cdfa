"""The chapters: run the notebooks, keep their files in one normal form, and say what is wrong with a file.

A notebook is committed executed, with the values of its `parameters` cell. `run` executes one, `normalise`
removes what changes from run to run (times, paths, versions), `problems` lists what a reader or a check would
trip over.
"""

import ast
import base64
import hashlib
import os
import re
import time
import warnings
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import nbformat
import yaml
from nbformat import NotebookNode

KEPT_CELL_METADATA = ("mystnb", "tags")
KERNEL = {"display_name": "Python 3", "language": "python", "name": "python3"}

# An address that a page would load by itself; a link that the reader may follow is not one.
OUTSIDE = re.compile(r"""(?:\bsrc|<link[^>]*\bhref)\s*=\s*["']?(?:https?:)?//""", re.IGNORECASE)
# A path of the machine that ran the notebook.
MACHINE_PATH = re.compile(r"(?<![\w./:-])/(?:home|root|tmp|var|usr|opt|Users|work|mnt|srv)/[\w.-]+")
# More decimals than a chapter can defend: they differ between processors.
ROUNDING_NOISE = re.compile(r"\d\.\d{12,}")
EMPTY_ALT = re.compile(r"!\[\s*\]\(|<img(?![^>]*\balt\s*=\s*[\"']\s*\S)[^>]*>", re.IGNORECASE)


class ParameterError(ValueError):
    """A parameter that the notebook does not have, or a value of the wrong type."""


class ExecutionError(RuntimeError):
    """A notebook that stopped with an error, or that asked for what is not there."""


def chapters(root: Path) -> list[Path]:
    """Return the notebooks of the book under `root`, in the order of their numbers."""
    found = sorted((root / "notebooks").glob("[0-9][0-9]_*.ipynb"))
    if not found:
        raise FileNotFoundError(
            f"no notebook notebooks/NN_name.ipynb under {root}: run this from the project's folder"
        )
    return found


# Parameters


def declared(notebook: NotebookNode) -> dict[str, Any]:
    """Return the names and default values that the cell tagged `parameters` assigns.

    Raises ParameterError where there is not exactly one such cell, or where a default is not a plain
    number, string, boolean or list: papermill can pass nothing else on without loss.
    """
    cells = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    if len(cells) != 1:
        raise ParameterError(f"expected one cell tagged `parameters`, found {len(cells)}")
    values: dict[str, Any] = {}
    for statement in ast.parse(cells[0].source).body:
        if not (isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name)):
            raise ParameterError(f"the parameters cell may only assign: `{ast.unparse(statement)}`")
        name = statement.targets[0].id
        try:
            values[name] = ast.literal_eval(statement.value)
        except ValueError:
            raise ParameterError(
                f"{name}: the default must be a literal, not `{ast.unparse(statement.value)}`"
            ) from None
        if not isinstance(values[name], bool | int | float | str | list):
            raise ParameterError(f"{name}: the default must be a number, string, boolean or list")
    return values


def _fits(value: Any, default: Any) -> bool:
    if isinstance(default, float):
        return isinstance(value, int | float) and not isinstance(value, bool)
    if isinstance(default, list):
        return isinstance(value, list) and all(_fits(v, default[0]) for v in value if default)
    return type(value) is type(default)


def checked(parameters: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return `parameters` with whole numbers made floats where the default is one.

    Raises ParameterError for a name that `defaults` lacks or a value whose type differs from the default's.
    """
    known = ", ".join(f"{name} ({type(value).__name__})" for name, value in defaults.items()) or "none"
    values = {}
    for name, value in parameters.items():
        if name not in defaults:
            raise ParameterError(f"unknown parameter {name!r} (= {value!r}); known parameters: {known}")
        default = defaults[name]
        if not _fits(value, default):
            hint = " (YAML reads 1e-3 as text: write 1.0e-3)" if isinstance(value, str) else ""
            raise ParameterError(
                f"parameter {name!r} is {value!r} ({type(value).__name__}), expected "
                f"{type(default).__name__}, like the default {default!r}{hint}; known parameters: {known}"
            )
        values[name] = float(value) if isinstance(default, float) else value
    return values


def parameter_file(path: Path, notebooks: Iterable[Path]) -> dict[str, dict[str, Any]]:
    """Read a file of parameters: one entry for every notebook (its name without .ipynb), each checked.

    Raises ParameterError, with the notebook's name, for an entry without a notebook, a notebook without an
    entry, and whatever `checked` refuses.
    """
    entries = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    by_name = {notebook.stem: notebook for notebook in notebooks}
    if unknown := set(entries) - set(by_name):
        raise ParameterError(
            f"{path.name}: no notebook named {', '.join(sorted(unknown))}; there are {', '.join(by_name)}"
        )
    if missing := set(by_name) - set(entries):
        raise ParameterError(
            f"{path.name}: no entry for {', '.join(sorted(missing))} (an empty one is `name: {{}}`)"
        )
    values = {}
    for name, notebook in by_name.items():
        try:
            values[name] = checked(entries[name] or {}, declared(nbformat.read(notebook, as_version=4)))
        except ParameterError as error:
            raise ParameterError(f"{path.name}, {name}: {error}") from None
    return values


# Execution


def run(source: Path, target: Path, parameters: Mapping[str, Any] | None = None) -> float:
    """Execute the notebook `source` in its own folder, write it normalised to `target`, return the seconds.

    `parameters` replace the defaults and are checked first (ParameterError). A cell that fails raises
    ExecutionError with its traceback, and leaves `target` as it was.
    """
    import papermill  # slow to import, and needed only here

    values = checked(parameters or {}, declared(nbformat.read(source, as_version=4)))
    os.environ["OMP_NUM_THREADS"] = "1"  # the kernel inherits it: sums in one order
    start = time.perf_counter()
    with TemporaryDirectory() as scratch:
        executed = Path(scratch) / source.name
        try:
            papermill.execute_notebook(
                source,
                executed,
                values,
                cwd=source.parent,
                kernel_name=KERNEL["name"],
                progress_bar=False,
                extra_arguments=["--log-level=50"],  # a cell that fails is reported here, with its traceback
            )
        except papermill.PapermillExecutionError as error:
            raise ExecutionError(f"{source.name}, cell {error.cell_index + 1}:\n{error}") from None
        seconds = time.perf_counter() - start
        write(nbformat.read(executed, as_version=4), target)
    return seconds


def run_all(
    notebooks: Iterable[Path], folder: Path, parameters: Mapping[str, Mapping[str, Any]], workers: int
) -> Iterator[tuple[str, float]]:
    """Run notebooks in `workers` processes, writing to `folder`; yield a name and seconds as each ends."""
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        jobs = {
            pool.submit(run, path, folder / path.name, parameters.get(path.stem)): path for path in notebooks
        }
        for job in as_completed(jobs):
            yield jobs[job].stem, job.result()


def write(notebook: NotebookNode, target: Path) -> None:
    """Write `notebook` to `target` in the normal form."""
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(nbformat.writes(normalise(notebook)) + "\n", encoding="utf-8")


def normalise(notebook: NotebookNode) -> NotebookNode:
    """Return a copy of `notebook` without what changes from run to run or from machine to machine.

    Kept: source, outputs, execution counts, tags, figure captions, the ids of cells. A cell without an id
    gets one from its place and source. Running a notebook twice gives the same bytes.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a missing id is what we are here to mend
        notebook = nbformat.from_dict(nbformat.convert(notebook, 4))
    notebook.nbformat_minor = 5
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNEL, "language_info": {"name": "python"}})
    for place, cell in enumerate(notebook.cells):
        if not cell.get("id"):
            cell.id = hashlib.sha256(f"{place}\n{cell.source}".encode()).hexdigest()[:8]
        cell.metadata = nbformat.from_dict(
            {k: cell.metadata[k] for k in KEPT_CELL_METADATA if cell.metadata.get(k)}
        )
        if cell.cell_type == "code":
            cell.outputs = _joined(cell.outputs)
    return notebook


def _joined(outputs: list[NotebookNode]) -> list[NotebookNode]:
    """Join the pieces of a stream: where a kernel flushes is chance."""
    joined: list[NotebookNode] = []
    for output in outputs:
        if (
            joined
            and output.output_type == "stream" == joined[-1].output_type
            and output.name == joined[-1].name
        ):
            joined[-1].text += output.text
        else:
            joined.append(output)
    return joined


def figure(notebooks: Iterable[Path], name: str) -> tuple[bytes, str]:
    """Return the PNG and the alt text of the figure `name`. Raises KeyError where no notebook has it."""
    for path in notebooks:
        for cell in nbformat.read(path, as_version=4).cells:
            mystnb = cell.metadata.get("mystnb", {})
            if mystnb.get("figure", {}).get("name") == name:
                png = next(o.data["image/png"] for o in cell.outputs if "image/png" in o.get("data", {}))
                return base64.b64decode(png), mystnb["image"]["alt"]
    raise KeyError(f"no figure is named {name!r}")


# Checks


def problems(path: Path) -> list[str]:
    """Return what is wrong with a committed notebook, one line each; an empty list means nothing.

    Checked: the normal form, every cell executed and in order, the parameters cell, alt text and caption of
    every figure, and outputs free of errors, warnings, machine paths, rounding noise and outside addresses.
    """
    text = path.read_text(encoding="utf-8")
    notebook = nbformat.reads(text, as_version=4)
    found = []
    if text != nbformat.writes(normalise(notebook)) + "\n":
        found.append("not in the normal form: run `icl notebooks run`")
    try:
        declared(notebook)
    except ParameterError as error:
        found.append(str(error))
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for place, cell in enumerate(code, start=1):
        if cell.execution_count != place:
            found.append(f"code cell {place} was not executed in order (its count is {cell.execution_count})")
        found += [f"code cell {place}: {fault}" for fault in (*_figure_faults(cell), *_output_faults(cell))]
    for cell in notebook.cells:
        if cell.cell_type == "markdown" and EMPTY_ALT.search(cell.source):
            found.append(f"text cell {cell.id}: a picture without alt text")
        if cell.cell_type == "markdown" and OUTSIDE.search(cell.source):
            found.append(f"text cell {cell.id}: loads something from an outside address")
    return [f"{path.name}: {fault}" for fault in found]


def _figure_faults(cell: NotebookNode) -> Iterator[str]:
    images = [o for o in cell.outputs if any(kind.startswith("image/") for kind in o.get("data", {}))]
    if not images:
        return
    mystnb = cell.metadata.get("mystnb", {})
    if len(images) > 1:
        yield f"{len(images)} figures in one cell, which share one caption"
    if not mystnb.get("image", {}).get("alt", "").strip():
        yield "figure without alt text (cell metadata mystnb.image.alt)"
    for key in ("caption", "name"):
        if not mystnb.get("figure", {}).get(key, "").strip():
            yield f"figure without {key} (cell metadata mystnb.figure.{key})"


def _output_faults(cell: NotebookNode) -> Iterator[str]:
    for output in cell.outputs:
        if output.output_type == "error":
            yield f"stopped with {output.ename}"
        if output.get("name") == "stderr":
            yield f"writes to stderr: {output.text.strip()[:80]!r}"
        shown = [
            v for k, v in output.get("data", {}).items() if not k.startswith("image/") and isinstance(v, str)
        ]
        for text in (*shown, output.get("text", "")):
            if match := MACHINE_PATH.search(text):
                yield f"shows a path of the machine that ran it: {match[0]!r}"
            if match := ROUNDING_NOISE.search(text):
                yield f"shows rounding noise: {match[0]!r}; print fewer digits"
            if OUTSIDE.search(text):
                yield "loads something from an outside address"
            if EMPTY_ALT.search(text):
                yield "a picture without alt text"
