"""The command line: each command calls one function of the library."""

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from icl_lib.cli_training import app as training
from icl_lib.cli_training import console, stop

app = typer.Typer(no_args_is_help=True, help="The closed-form reproduction: training, notebooks, site.")
notebooks = typer.Typer(no_args_is_help=True, help="Run and check the chapters.")
site = typer.Typer(no_args_is_help=True, help="Build and check the site.")
app.add_typer(notebooks, name="notebooks")
app.add_typer(site, name="site")
app.add_typer(training)


def _report(found: list[str], fine: str) -> None:
    if found:
        raise stop("\n".join(found))
    console.print(fine)


@notebooks.command("run")
def notebooks_run(
    names: Annotated[
        list[str] | None, typer.Argument(help="Chapters, such as 02_construction. [default: all]")
    ] = None,
    parameters: Annotated[
        Path | None, typer.Option(help="Run with this file's parameters, into _build/ and not in place.")
    ] = None,
    workers: Annotated[int, typer.Option(min=1, help="How many notebooks at a time.")] = min(
        2, os.cpu_count() or 1
    ),
) -> None:
    """Execute notebooks and write them in the normal form, in place or under _build/."""
    from icl_lib.chapters import ExecutionError, ParameterError, chapters, parameter_file, run_all
    from icl_lib.site import record_times

    root = Path.cwd()
    try:
        every = chapters(root)
        if unknown := set(names or []) - {path.stem for path in every}:
            raise ParameterError(f"no notebook named {', '.join(sorted(unknown))}")
        chosen = [path for path in every if not names or path.stem in names]
        values = parameter_file(parameters, every) if parameters else {}
        folder = root / "_build" / parameters.stem if parameters else root / "notebooks"
        columns = SpinnerColumn(), TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn()
        seconds = {}
        with Progress(*columns, console=console) as progress:
            task = progress.add_task("notebooks", total=len(chosen))
            for name, taken in run_all(chosen, folder, values, workers):
                seconds[name] = taken
                progress.console.print(f"{name}: {taken:.1f} s")
                progress.advance(task)
    except (ExecutionError, ParameterError, FileNotFoundError) as error:
        raise stop(error) from None
    if not parameters:
        record_times(root, seconds)


@notebooks.command("figure")
def notebooks_figure(name: str, target: Path) -> None:
    """Write the picture of a chapter's figure, such as fig-pulled-line, to a file."""
    from icl_lib.chapters import chapters, figure

    try:
        target.write_bytes(figure(chapters(Path.cwd()), name)[0])
    except (KeyError, FileNotFoundError) as error:
        raise stop(error) from None


@notebooks.command("check")
def notebooks_check() -> None:
    """Check the committed notebooks: executed, in the normal form, figures described."""
    from icl_lib.chapters import chapters, problems

    _report(
        [fault for path in chapters(Path.cwd()) for fault in problems(path)], "The notebooks are in order."
    )


@site.command("build")
def site_build() -> None:
    """Build the site; any warning is an error."""
    from icl_lib.site import BuildError, build

    try:
        console.print(f"Built {build(Path.cwd())}", soft_wrap=True)
    except (BuildError, FileNotFoundError) as error:
        raise stop(error) from None


@site.command("dist")
def site_dist() -> None:
    """Write archives of the built site and of the notebooks, with checksums, to _build/dist."""
    from icl_lib.dist import make_archives
    from icl_lib.site import BuildError

    try:
        for path in make_archives(Path.cwd()):
            console.print(f"{path} ({path.stat().st_size / 1e6:.1f} MB)", soft_wrap=True)
    except BuildError as error:
        raise stop(error) from None


@site.command("check")
def site_check() -> None:
    """Check the built site: pages, links, pictures, captions, no outside address."""
    from icl_lib.site import site_problems

    _report(site_problems(Path.cwd()), "The site is in order.")
