"""Made at the build: where each equation is checked, how long each chapter ran, what the library holds."""

import json
import pkgutil
from collections import Counter
from pathlib import Path

import yaml
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import icl_lib
from icl_lib.site import STATUS, equation_anchor, equation_cells, equation_tags


class EquationIndex(SphinxDirective):
    """One table a section of book/equations.yml: number, statement, the cells that check it."""

    def run(self) -> list[nodes.Node]:
        root = Path(self.env.srcdir)
        source = root / "book" / "equations.yml"
        self.env.note_dependency(str(source))
        self.env.note_reread()
        checked = equation_cells(root)
        lines: list[str] = []
        for section, statements in yaml.safe_load(source.read_text(encoding="utf-8")).items():
            lines += [f"## {section}", "", "| Equation | What it says | Checked in |", "|---|---|---|"]
            for number, statement in statements.items():
                links = [
                    self._link(cell.page, cell.anchor, cell.chapter, cell.section)
                    for cell in checked.get(number, [])
                ]
                lines.append(f"| ({number}) | {statement} | {'; '.join(links)} |")
            lines.append("")
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)

    def _link(self, page: str, anchor: str, chapter: str, section: str) -> str:
        relative = self.env.app.builder.get_relative_uri(self.env.docname, page)
        return f'<a class="reference internal" href="{relative}#{anchor}">{chapter}: {section}</a>'


class Status(SphinxDirective):
    """Run time of each chapter in this build, versions, machine."""

    def run(self) -> list[nodes.Node]:
        self.env.note_reread()
        path = Path(self.env.srcdir) / STATUS
        if not path.exists():
            return self.parse_text_to_nodes("This copy was built without running the notebooks: no times.")
        status = json.loads(path.read_text())
        lines = ["| Chapter | Seconds |", "|---|---:|"]
        lines += [
            f"| {{doc}}`/notebooks/{name}` | {taken:.1f} |"
            for name, taken in sorted(status["seconds"].items())
        ]
        lines += ["", "| Software | Version |", "|---|---|"]
        lines += [f"| {name} | {value} |" for name, value in status["versions"].items()]
        lines += ["", "| Machine | |", "|---|---|"]
        lines += [f"| {name} | {value} |" for name, value in status["machine"].items()]
        return self.parse_text_to_nodes("\n".join(lines))


class Library(SphinxDirective):
    """One section a module of icl_lib, from the docstrings; of a package, what its __init__ exports."""

    def run(self) -> list[nodes.Node]:
        self.env.note_reread()
        lines: list[str] = []
        for module in pkgutil.iter_modules(icl_lib.__path__):
            if module.name == "cli":  # `icl --help` says it better
                continue
            lines += [
                f"## {module.name}",
                "",
                "```{eval-rst}",
                f".. automodule:: icl_lib.{module.name}",
            ]
            lines += ["   :members:", *(["   :imported-members:"] if module.ispkg else []), "```", ""]
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


class Drift(SphinxDirective):
    """How far plain PyTorch drifts from itself: results/drift.json, from benchmarks/drift.py."""

    def run(self) -> list[nodes.Node]:
        path = Path(self.env.srcdir) / "results" / "drift.json"
        self.env.note_dependency(str(path))
        measured = json.loads(path.read_text())
        lines = [
            f"PyTorch {measured['torch']}, float32, one seed.",
            "",
            "| Setting | Steps | Weights | Answers (units of y) |",
            "|---|---:|---:|---:|",
        ]
        lines += [
            f"| {row['setting']} | {row['steps']} | {row['weights']:.1e} | {row['answers']:.1e} |"
            for row in measured["rows"]
        ]
        return self.parse_text_to_nodes("\n".join(lines))


def anchor_cells(app: Sphinx, doctree: nodes.document) -> None:
    """Give each code cell tagged `eq-18` the id that the equation index links to."""
    seen: Counter[int] = Counter()
    for cell in doctree.findall(nodes.container):
        if "cell" not in cell["classes"]:
            continue
        for number in equation_tags([name.removeprefix("tag_") for name in cell["classes"]]):
            seen[number] += 1
            cell["ids"].append(equation_anchor(number, seen[number]))


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("equation-index", EquationIndex)
    app.add_directive("status", Status)
    app.add_directive("drift", Drift)
    app.add_directive("library", Library)
    app.connect("doctree-read", anchor_cells)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
