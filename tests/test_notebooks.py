"""Every chapter, as committed: in order, reproduced cell by cell, and able to run with other parameters."""

from pathlib import Path

import pytest
import yaml

from icl_lib.chapters import chapters, parameter_file, problems, run
from icl_lib.site import contents_problems, equation_cells
from tests.strict import nbval

ROOT = Path(__file__).resolve().parents[1]
CHAPTERS = [pytest.param(path, id=path.stem) for path in chapters(ROOT)]
PARAMETERS = ROOT / "notebooks" / "parameters"


@pytest.mark.parametrize("path", CHAPTERS)
def test_file_is_in_order(path: Path) -> None:
    assert problems(path) == []


@pytest.mark.parametrize("path", CHAPTERS)
def test_outputs_are_reproduced(path: Path) -> None:
    assert nbval(path) == []


@pytest.mark.parametrize("path", CHAPTERS)
def test_runs_with_smoke_parameters(path: Path, tmp_path: Path) -> None:
    values = parameter_file(PARAMETERS / "smoke.yaml", chapters(ROOT))
    run(path, tmp_path / path.name, values[path.stem])


@pytest.mark.parametrize("name", ["smoke.yaml", "full.yaml"])
def test_parameter_file_fits_the_notebooks(name: str) -> None:
    assert set(parameter_file(PARAMETERS / name, chapters(ROOT))) == {path.stem for path in chapters(ROOT)}


def test_contents_list_every_page() -> None:
    assert contents_problems(ROOT) == []


# (57) is the regression of §4.5, which belongs to the experiment and not to the construction.
@pytest.mark.parametrize("number", [*range(1, 57), *range(58, 109)])
def test_equation_is_checked_in_a_cell(number: int) -> None:
    assert equation_cells(ROOT).get(number), f"no code cell is tagged eq-{number}"


def test_equation_index_knows_every_tag() -> None:
    sections = yaml.safe_load((ROOT / "book" / "equations.yml").read_text(encoding="utf-8"))
    described = [number for statements in sections.values() for number in statements]
    assert len(described) == len(set(described))
    assert set(equation_cells(ROOT)) <= set(described)
