"""The scoreboard's data and its rules; each guard is shown to bite on an altered copy."""

import math

import nbformat
import pytest
from pydantic import ValidationError
from scipy.stats import binom

from icl_lib.claims import (
    MIME,
    Claim,
    Finding,
    collect,
    findings,
    load,
    report,
    report_share,
    share_interval,
)


def claim(**changes):
    fields = {
        "id": "one",
        "place": "(1)",
        "statement": "s",
        "paper": "1",
        "kind": "number",
        "criterion": "c",
        "low": 0.5,
        "high": 2.0,
        "chapter": "01_setup",
    }
    return Claim.model_validate(fields | changes)


@pytest.mark.parametrize(
    ("kind", "value", "interval", "verdict"),
    [
        ("number", 1.0, (1, 1), "holds within tolerance"),
        ("number", 2.1, (1, 3), "does not hold"),
        ("number", math.nan, (1, 1), "does not hold"),
        ("shape", 0.5, (0, 1), "holds in shape"),
        ("exact", 1.9, (0, 0), "holds"),
        ("exact", 2.1, (0, 0), "does not hold"),
        ("silent", 99.0, (0, 0), "cannot be tested (paper silent)"),
        ("contradiction", 99.0, (0, 0), "the paper contradicts itself"),
    ],
)
def test_verdict_follows_the_region(kind, value, interval, verdict):
    assert claim(kind=kind).verdict(value, interval) == verdict


@pytest.mark.parametrize(
    ("interval", "verdict"),
    [((0.9, 1), "holds"), ((0.0, 0.05), "does not hold"), ((0.5, 0.95), "holds in part")],
)
def test_fractions_are_judged_by_their_interval(interval, verdict):
    assert claim(kind="fraction", low=0.9).verdict(0.5, interval) == verdict


@pytest.mark.parametrize(
    "change",
    [
        {"low": -math.inf, "high": math.inf},
        {"kind": "fraction", "low": 0.4},
        {"kind": "maybe"},
        {"id": "Not An Id"},
        {"tolerance": 1},
    ],
)
def test_a_claim_that_cannot_fail_or_is_misspelt_is_refused(change):
    with pytest.raises(ValidationError):
        claim(**change)


def test_an_unknown_id_or_a_count_without_interval_is_refused():
    with pytest.raises(KeyError, match="unknown claim 'no-such'"):
        report("no-such", 1.0, n=1)
    counted = next(name for name, c in load().items() if c.kind == "fraction")
    with pytest.raises(ValueError, match="give the interval"):
        report(counted, 0.5, n=10)


@pytest.mark.parametrize(("count", "of"), [(0, 10), (3, 10), (10, 10), (17, 40)])
def test_outside_the_interval_of_a_share_the_count_is_a_surprise(count, of):
    low, high = share_interval(count, of)
    if count > 0:
        assert binom.sf(count - 1, of, low) == pytest.approx(0.025)
    if count < of:
        assert binom.cdf(count, of, high) == pytest.approx(0.025)
    assert (low == 0) == (count == 0)
    assert (high == 1) == (count == of)


@pytest.mark.parametrize(("count", "of"), [(0, 0), (3, 2), (-1, 2)])
def test_what_is_not_a_share_is_refused(count, of):
    with pytest.raises(ValueError, match="is not a share"):
        share_interval(count, of)


def test_a_reported_share_is_the_fraction_and_its_interval():
    counted = next(name for name, c in load().items() if c.kind == "fraction")
    expected = report(counted, 0.75, n=4, interval=share_interval(3, 4), digits=2, note="why")
    assert report_share(counted, [True, True, False, True], note="why") == expected


def test_a_report_shows_and_carries_its_finding():
    exact = next(name for name, c in load().items() if c.kind == "exact")
    bundle = report(exact, 0.123456, n=7)._repr_mimebundle_()
    assert bundle[MIME]["verdict"] == "holds"
    assert "0.123" not in bundle["text/plain"]  # rounding noise is not printed
    assert exact in bundle["text/html"]
    assert Finding(**bundle[MIME]) == report(exact, 0.123456, n=7)


def notebook(path, *ids):
    cells = []
    for name in ids:
        finding = Finding(id=name, ours="1", n=1, verdict="holds").model_dump()
        output = nbformat.v4.new_output("display_data", data={MIME: finding, "text/plain": ""})
        cells.append(nbformat.v4.new_code_cell("", outputs=[output], execution_count=1))
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    return path


def test_the_scoreboard_must_be_whole(tmp_path):
    claims = {"one": claim(), "two": claim(id="two")}
    whole = notebook(tmp_path / "01_setup.ipynb", "one", "two")
    assert set(collect([whole], claims)) == {"one", "two"}
    assert [index for _, index in findings(whole)] == [0, 1]
    for ids, message in (
        (("one",), "no chapter reports 'two'"),
        (("one", "two", "two"), "a second time"),
        (("one", "two", "three"), "not in the data file"),
    ):
        with pytest.raises(ValueError, match=message):
            collect([notebook(tmp_path / "01_setup.ipynb", *ids)], claims)
    with pytest.raises(ValueError, match="belongs to 01_setup"):
        collect([notebook(tmp_path / "02_other.ipynb", "one", "two")], claims)
