"""The page on speed: tables and figures made at the build from results/benchmark.json."""

import json
from html import escape
from io import StringIO
from pathlib import Path
from typing import Any, ClassVar

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from docutils import nodes
from matplotlib.figure import Figure
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from icl_lib.figures import COLOURS, use_style

# Colour, marker and line of each contender.
LOOK = {
    "engine": (COLOURS["trained"], "o", "-"),
    "PyTorch": (COLOURS["construction"], "s", "-"),
    "torch.compile": (COLOURS["repaired"], "^", "-"),
    "torch.compile, lanes": (COLOURS["repaired"], "v", "--"),
    "JAX": (COLOURS["least_squares"], "D", "-"),
    "JAX, lanes": (COLOURS["least_squares"], "P", "--"),
}


def at(results: dict[str, Any], n_context: int, dim: int) -> dict[str, Any]:
    """The measurements at one size."""
    return next(row for row in results["sizes"] if (row["n_context"], row["dim"]) == (n_context, dim))


def draw_sizes(results: dict[str, Any]) -> Figure:
    """Milliseconds a step against N, a panel for each D."""
    use_style()
    dims = sorted({row["dim"] for row in results["sizes"]})
    figure, axes = plt.subplots(1, len(dims), sharey=True, figsize=(8.0, 4.2))
    for ax, dim in zip(axes, dims, strict=True):
        rows = [row for row in results["sizes"] if row["dim"] == dim]
        for name, (colour, marker, line) in LOOK.items():
            x, y = [row["n_context"] for row in rows], [row["milliseconds"][name] for row in rows]
            ax.loglog(x, y, color=colour, marker=marker, linestyle=line, label=name)
        ax.set(title=f"D = {dim}", xlabel="context points N")
    axes[0].set_ylabel("time of a step (ms)")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


def draw_cores(results: dict[str, Any]) -> Figure:
    """Seconds for several equal runs, on one core and on two."""
    use_style()
    figure, ax = plt.subplots()
    runs = [row["runs"] for row in results["cores"]]
    for name, label, colour in (
        ("one_core", "one core", COLOURS["least_squares"]),
        ("two_cores", "two cores", COLOURS["trained"]),
    ):
        ax.plot(runs, [row[name] for row in results["cores"]], color=colour, marker="o", label=label)
    ax.set(xlabel="equal runs", ylabel="time for all (s)", xticks=runs, ylim=(0, None))
    ax.legend()
    return figure


class Speed(SphinxDirective):
    """`sizes`, `cores`: a figure with its finding. `table`, `machine`: the numbers, and where measured."""

    required_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = {}

    def run(self) -> list[nodes.Node]:
        path = Path(self.env.srcdir) / "results" / "benchmark.json"
        self.env.note_dependency(str(path))
        results = json.loads(path.read_text())
        return getattr(self, f"_{self.arguments[0]}")(results)

    def _figure(self, figure: Figure, finding: str, alt: str) -> list[nodes.Node]:
        """The picture inside the page itself, so that it cannot be older than its numbers."""
        buffer = StringIO()
        figure.savefig(buffer, format="svg", metadata={"Date": None})
        plt.close(figure)
        svg = buffer.getvalue()
        svg = svg[svg.index("<svg") :].replace("<svg", f'<svg role="img" aria-label="{escape(alt)}"', 1)
        box = nodes.figure("", nodes.raw("", svg, format="html"), classes=["speed"])
        box += nodes.caption("", "", *self.parse_inline(finding)[0])
        return [box]

    def _sizes(self, results: dict[str, Any]) -> list[nodes.Node]:
        ratio = at(results, 50, 4)["ratio"]
        rival = min(
            (name for name in ratio if name not in ("engine", "PyTorch")), key=lambda name: ratio[name]
        )
        finding = (
            f"At the paper's size (N = 50, D = 4) a step of the engine is {ratio['PyTorch']:.0f} times as "
            f"fast as plain PyTorch's and {ratio[rival]:.0f} times as fast as the best compiler's ({rival})."
        )
        return self._figure(
            draw_sizes(results), finding, "Time of a step against N for six programs, two sizes D"
        )

    def _cores(self, results: dict[str, Any]) -> list[nodes.Node]:
        most = results["cores"][-1]
        finding = (
            f"{most['runs']:.0f} runs take {most['speedup']:.2f} times as long on one core as on two. "
            f"The paper's ten runs of 200,000 steps took {results['runs']['seconds'] / 60:.1f} minutes on "
            "two cores, compiling included."
        )
        return self._figure(
            draw_cores(results), finding, "Time for 1, 2, 4 and 8 runs on one core and on two"
        )

    def _table(self, results: dict[str, Any]) -> list[nodes.Node]:
        rivals = [name for name in LOOK if name != "engine"]
        lines = [
            "| D | N | engine (ms) | a row (µs) | " + " | ".join(rivals) + " |",
            "|" + "---:|" * (4 + len(rivals)),
        ]
        for row in sorted(results["sizes"], key=lambda row: (row["dim"], row["n_context"])):
            engine = row["milliseconds"]["engine"]
            ratios = " | ".join(f"{row['ratio'][name]:.1f}" for name in rivals)
            per_row = 1000 * engine / (row["n_context"] + 1)
            lines.append(f"| {row['dim']} | {row['n_context']} | {engine:.3f} | {per_row:.2f} | {ratios} |")
        return self.parse_text_to_nodes("\n".join(lines))

    def _machine(self, results: dict[str, Any]) -> list[nodes.Node]:
        machine = results["machine"]
        versions = ", ".join(f"{name} {value}" for name, value in machine["versions"].items())
        text = (
            f"Measured on {machine['processor']}, {machine['cores']} cores, {machine['system']}, "
            f"Python {machine['python']}, {versions}; medians of {results['rounds']} rounds."
        )
        return self.parse_text_to_nodes(text)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("speed", Speed)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
