"""The paper's tables are typed in twice, in `paper.py` and in the claims: the two must agree."""

import re

import numpy as np
import pytest

from icl_lib.claims import load
from icl_lib.paper import (
    TABLE_1_CORRELATIONS,
    TABLE_1_ERRORS,
    TABLE_2_COEFFICIENTS,
    TABLE_2_FIT,
    TABLE_2_LSE,
    TABLE_2_STANDARDISED,
)


@pytest.mark.parametrize(
    ("prefix", "values"), [("t1-error", TABLE_1_ERRORS), ("t1-corr", TABLE_1_CORRELATIONS)]
)
def test_table_1_is_that_of_the_claims(prefix, values):
    assert [float(load()[f"{prefix}-{run}"].paper) for run in range(1, 11)] == list(values)


def test_summaries_of_table_1_in_the_claims():
    assert f"{np.median(TABLE_1_ERRORS):.6f}".endswith(load()["t1-errors-some-penalty"].paper.split(".")[1])
    spread = np.std(np.log(TABLE_1_ERRORS), ddof=1)
    assert f"{spread:.2f}" in load()["t1-error-spread"].paper
    above = sum(value > 0.9 for value in TABLE_1_CORRELATIONS)
    assert load()["t1-corr-above"].paper == f"{above} of {len(TABLE_1_CORRELATIONS)}"


@pytest.mark.parametrize(
    ("claim", "value"),
    [
        ("t2-constant", TABLE_2_COEFFICIENTS[0]),
        ("t2-alpha1", TABLE_2_STANDARDISED[0]),
        ("t2-alpha2", TABLE_2_STANDARDISED[1]),
        ("t2-alpha3", TABLE_2_STANDARDISED[2]),
        ("t2-fit", TABLE_2_FIT),
        ("t2-lse", TABLE_2_LSE),
    ],
)
def test_table_2_is_that_of_the_claims(claim, value):
    assert float(re.findall(r"-?\d*\.\d+", load()[claim].paper)[-1]) == value


def test_table_2_ratio_in_the_claims():
    *_, alpha_2, alpha_3 = TABLE_2_COEFFICIENTS
    assert f"{alpha_2 / alpha_3:.3f}" in load()["t2-ratio"].paper
