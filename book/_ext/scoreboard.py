"""The scoreboard: one row a claim, made at the build from the data file and the executed notebooks."""

from collections import Counter
from functools import cache
from html import escape
from pathlib import Path
from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective, SphinxRole

from icl_lib.chapters import chapters
from icl_lib.claims import DATA, Claim, Finding, collect, load

COLUMNS = ("Place", "Statement", "Paper", "Ours", "Verdict", "Agreed beforehand", "n", "Checked in")

OURS = ("hagiwara2026", "open")  # sources that have a table of their own, and need not be named in it


@cache
def all_findings(root: Path) -> dict[str, Finding]:
    """The finding of every claim, read from the chapters once a build."""
    return collect(chapters(root), load())


def row(claim: Claim, finding: Finding, page: str) -> str:
    """One claim as a table row; `page` is the address of its chapter."""
    note = f'<div class="note">{escape(finding.note)}</div>' if finding.note else ""
    place = claim.place if claim.source in OURS else f"{claim.source}, {claim.place}"
    cells = (
        escape(place),
        escape(claim.statement),
        escape(claim.paper),
        escape(finding.ours),
        f"{finding.verdict}{note}",
        escape(claim.criterion),
        str(finding.n),
        f'<a href="{page}#claim-{claim.id}">{claim.chapter.replace("_", " ")}</a>',
    )
    body = "".join(f"<td>{cell}</td>" for cell in cells[1:])
    verdict = escape(finding.verdict, quote=True)
    return f'<tr id="{claim.id}" data-verdict="{verdict}"><th scope="row">{cells[0]}</th>{body}</tr>'


class Scoreboard(SphinxDirective):
    """The table of the claims of the named sources (bibliography keys), with controls to sort and filter."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec: ClassVar = {"label": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        for path in DATA.glob("*.toml"):
            self.env.note_dependency(str(path))
        self.env.note_reread()
        found = all_findings(Path(self.env.srcdir))
        sources = self.arguments[0].split()
        claims = [claim for claim in load().values() if claim.source in sources]
        link = self.env.app.builder.get_relative_uri
        rows = [
            row(claim, found[claim.id], link(self.env.docname, f"notebooks/{claim.chapter}"))
            for claim in claims
        ]
        tally = Counter(found[claim.id].verdict for claim in claims)
        heads = "".join(f'<th scope="col">{name}</th>' for name in COLUMNS)
        options = "".join(
            f'<option value="{escape(v, quote=True)}">{escape(v)} ({k})</option>'
            for v, k in tally.most_common()
        )
        html = f"""
<div class="scoreboard">
<p class="controls">
<label>Find <input type="search" autocomplete="off"></label>
<label>Verdict <select><option value="">all ({len(claims)})</option>{options}</select></label>
<span role="status" aria-live="polite"></span>
</p>
<div class="scroll" role="region" aria-label="{escape(self.options["label"], quote=True)}" tabindex="0">
<table class="sortable"><caption>{escape(self.options["label"])}</caption>
<thead><tr>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table></div></div>"""
        return [nodes.raw("", html, format="html")]


class FindingRole(SphinxRole):
    """{finding}`claim-id`: our value of one claim, linked to its row of the scoreboard."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        self.env.note_reread()
        found = all_findings(Path(self.env.srcdir))
        if self.text not in found:
            message = self.inliner.reporter.error(f"no claim {self.text!r}", line=self.lineno)
            return [], [message]
        address = self.env.app.builder.get_relative_uri(self.env.docname, "book/scoreboard") + f"#{self.text}"
        return [nodes.reference("", found[self.text].ours, refuri=address, internal=True)], []


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("scoreboard", Scoreboard)
    app.add_role("finding", FindingRole())
    return {"parallel_read_safe": True, "parallel_write_safe": True}
