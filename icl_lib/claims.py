"""The paper's claims as data: what it says, what we accept as the same, what we found.

`results/claims/` holds the claims and their criteria, committed before the runs that they judge. A
chapter reports its value by claim id with `report`; the report lives in the executed notebook, and the
scoreboard page is made from the notebooks and the data file. There is no third copy.
"""

from __future__ import annotations

import html
import math
import tomllib
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import nbformat
from pydantic import BaseModel, ConfigDict, Field, model_validator

MIME = "application/vnd.icl.claim+json"  # how a report is found again in a notebook's outputs
DATA = Path(__file__).parent.parent / "results" / "claims"

Verdict = Literal[
    "holds",
    "holds within tolerance",
    "holds in shape",
    "holds in part",
    "does not hold",
    "cannot be tested (paper silent)",
    "the paper contradicts itself",
]


class Claim(BaseModel):
    """One statement that a reader could check, and the region of our value that would confirm it.

    `kind` says how the value is judged against the region [low, high]:

    - exact: the value is a deviation over its stated rounding bound; inside the region it `holds`;
    - number: our value, in the paper's unit, `holds within tolerance` inside the region;
    - shape: a statistic that a curve or picture must have `holds in shape` inside the region;
    - fraction: the share of runs (or cases) that do it; `holds` if its interval stays above low, `does not
      hold` if it stays below 1 − low, else `holds in part`;
    - silent, contradiction: the paper leaves it open, or says two things: fixed, with the evidence reported.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    id: str = Field(pattern=r"^[a-z0-9-]+$")
    place: str = Field(description="where the paper says it: section, equation, table or figure")
    statement: str = Field(description="the claim in our words")
    paper: str = Field(description="the paper's value, as text")
    kind: Literal["exact", "number", "shape", "fraction", "silent", "contradiction"]
    criterion: str = Field(description="what was agreed beforehand to count as the same, in words")
    low: float = -math.inf
    high: float = math.inf
    chapter: str = Field(description="notebook that reports the value, without .ipynb")
    source: str = Field(
        "hagiwara2026", description='bibliography key, or "open" for a question it leaves open'
    )

    @model_validator(mode="after")
    def _region_must_be_able_to_fail(self) -> Claim:
        if self.kind in ("exact", "number", "shape") and math.isinf(self.low) and math.isinf(self.high):
            raise ValueError(f"claim {self.id}: kind {self.kind!r} needs low or high, else it cannot fail")
        if self.kind == "fraction" and not 0.5 < self.low < 1:
            raise ValueError(f"claim {self.id}: kind 'fraction' needs low between 0.5 and 1")
        return self

    def verdict(self, value: float, interval: tuple[float, float]) -> Verdict:
        """Judge a value (and its interval) by the criterion."""
        if self.kind == "silent":
            return "cannot be tested (paper silent)"
        if self.kind == "contradiction":
            return "the paper contradicts itself"
        if self.kind == "fraction":
            if interval[0] >= self.low:
                return "holds"
            return "does not hold" if interval[1] <= 1 - self.low else "holds in part"
        if not self.low <= value <= self.high:  # a NaN fails here too
            return "does not hold"
        passed: dict[str, Verdict] = {
            "exact": "holds",
            "number": "holds within tolerance",
            "shape": "holds in shape",
        }
        return passed[self.kind]


class Finding(BaseModel):
    """What a chapter found for one claim: our value, its interval and n, and the verdict they give."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: str
    ours: str = Field(description="our value as the page shows it")
    n: int = Field(ge=1, description="runs, prompts or cases behind the value")
    verdict: Verdict
    note: str = ""

    def _repr_mimebundle_(self, **_: Any) -> dict[str, Any]:
        claim = load()[self.id]
        lines = (
            f"Claim {self.id} ({claim.place}): {claim.statement}",
            f"paper: {claim.paper}; ours: {self.ours} (n = {self.n}); agreed beforehand: {claim.criterion}",
            f"Verdict: {self.verdict}." + (f" {self.note}" if self.note else ""),
        )
        body = "<br>".join(html.escape(line) for line in lines)
        return {
            MIME: self.model_dump(),
            "text/plain": "\n".join(lines),
            "text/html": f'<div class="claim" id="claim-{self.id}">{body}</div>',
        }


@cache
def load(folder: Path = DATA) -> dict[str, Claim]:
    """All claims by id, in the order of the files' names and within each file.

    Raises:
        ValueError: two claims share an id, or a claim lacks a field or has an unknown one.
    """
    entries = [
        entry
        for path in sorted(folder.glob("*.toml"))
        for entry in tomllib.loads(path.read_text(encoding="utf-8"))["claim"]
    ]
    claims = {entry["id"]: Claim(**entry) for entry in entries}
    if len(claims) != len(entries):
        raise ValueError(f"{folder} has {len(entries)} claims but {len(claims)} ids: an id is used twice")
    return claims


def report(
    claim_id: str,
    value: float,
    *,
    n: int,
    interval: tuple[float, float] | None = None,
    digits: int = 3,
    note: str = "",
) -> Finding:
    """A chapter's finding for one claim, shown below the cell and collected by the scoreboard.

    Args:
        claim_id: an id of `results/claims/`.
        value: our value. For kind "exact" a deviation over its bound; it is shown only as within or beyond,
            since its digits are rounding noise.
        n: runs, prompts or cases behind it.
        interval: 95 % interval of the value; needed for kind "fraction".
        digits: significant digits that the chapter can defend.
        note: one sentence of evidence or qualification.

    Raises:
        KeyError: no such claim.
        ValueError: kind "fraction" without an interval.
    """
    if claim_id not in load():
        raise KeyError(f"unknown claim {claim_id!r}; known: {', '.join(load())}")
    claim = load()[claim_id]
    if claim.kind == "fraction" and interval is None:
        raise ValueError(f"claim {claim_id} counts runs: give the interval of the fraction")
    verdict = claim.verdict(value, interval or (value, value))
    if claim.kind == "exact":
        ours = "within the bound" if verdict == "holds" else f"{value:.2g} times the bound"
    else:
        ours = f"{value:.{digits}g}"
        if interval is not None:
            ours += f" [{interval[0]:.{digits}g}, {interval[1]:.{digits}g}]"
    return Finding(id=claim_id, ours=ours, n=n, verdict=verdict, note=note)


def share_interval(count: int, of: int) -> tuple[float, float]:
    """Exact (Clopper–Pearson) 95 % interval of a share.

    Raises:
        ValueError: `of` is 0, or `count` is not between 0 and `of`.
    """
    if not 0 <= count <= of or of == 0:
        raise ValueError(f"{count} of {of} is not a share; expected 0 <= count <= of, and of at least 1")
    from scipy.stats import binomtest  # here: slow to import, and most users of this module count nothing

    low, high = binomtest(int(count), int(of)).proportion_ci()
    return float(low), float(high)


def report_share(claim_id: str, hits: Sequence[bool], *, note: str = "") -> Finding:
    """Report the share of runs (or cases) that are True, with its exact interval; see `report`."""
    count, of = int(sum(hits)), len(hits)
    return report(claim_id, count / of, n=of, interval=share_interval(count, of), digits=2, note=note)


def findings(notebook: Path) -> Iterator[tuple[Finding, int]]:
    """The findings that an executed notebook shows, each with the index of its cell."""
    for index, cell in enumerate(nbformat.read(notebook, as_version=4).cells):
        for output in cell.get("outputs", []):
            if MIME in output.get("data", {}):
                yield Finding(**output["data"][MIME]), index


def collect(notebooks: list[Path], claims: dict[str, Claim]) -> dict[str, Finding]:
    """The finding of every claim, from the chapters.

    Raises:
        ValueError: a claim without a finding, with two, from another chapter than it names, of an unknown id,
            or with a verdict that its criterion does not allow; all are listed.
    """
    found: dict[str, Finding] = {}
    wrong = []
    for notebook in notebooks:
        for finding, index in findings(notebook):
            where = f"{notebook.stem}, cell {index}"
            claim = claims.get(finding.id)
            if claim is None:
                wrong.append(f"{where} reports {finding.id!r}, which is not in the data file")
            elif claim.chapter != notebook.stem:
                wrong.append(f"{where} reports {finding.id!r}, which belongs to {claim.chapter}")
            elif finding.id in found:
                wrong.append(f"{where} reports {finding.id!r} a second time")
            else:
                found[finding.id] = finding
    wrong += [f"no chapter reports {name!r} ({claims[name].chapter})" for name in claims if name not in found]
    if wrong:
        raise ValueError("the scoreboard is not whole:\n" + "\n".join(f"- {line}" for line in wrong))
    return found
