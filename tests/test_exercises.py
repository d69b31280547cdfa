"""The check of an exercise: right answers pass, wrong ones get the sentence that fits."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from icl_lib.exercises import check

NUMBER = st.floats(1e-3, 1e3) | st.floats(-1e3, -1e-3)


@given(right=NUMBER, error=st.floats(-0.0099, 0.0099))
def test_a_number_within_the_tolerance_is_right(right: float, error: float) -> None:
    assert check(right * (1 + error), right) == "Right."


@given(right=NUMBER, answer=NUMBER)
def test_any_other_number_is_not(right: float, answer: float) -> None:
    assume(abs(answer - right) > 0.02 * max(abs(answer), abs(right)))
    said = check(answer, right)
    assert said.startswith("Not yet")
    assert ("sign" in said) == (answer * right < 0)
    if answer * right > 0:
        assert ("large" in said) == (abs(answer) > abs(right))


def test_a_known_mistake_gets_its_hint() -> None:
    assert check(2.001, 1.0, {2.0: "Divide by two."}) == "Not yet. Divide by two."
    assert check(None, 1.0, {2.0: "Divide by two."}) == "No answer yet."


def test_a_check_that_could_not_fail_is_refused() -> None:
    with pytest.raises(ValueError, match="counts as the right answer"):
        check(1.0, 1.0, {1.005: "This is the right answer."})
    with pytest.raises(ValueError, match="right answer is 0"):
        check(1.0, 0.0)
