"""The check behind an exercise: it says what is wrong with an answer, not only that it is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType


def check(
    answer: float | None,
    right: float,
    mistakes: Mapping[float, str] = MappingProxyType({}),
    *,
    tolerance: float = 0.01,
) -> str:
    """A sentence about a reader's number.

    Args:
        answer: the reader's number; None where there is none yet.
        right: the right one, not 0.
        mistakes: numbers that known mistakes lead to, each with what to think of next.
        tolerance: relative distance within which two numbers count as the same.

    Returns:
        "Right.", the mistake's sentence, or in which direction the answer is off.

    Raises:
        ValueError: `right` is 0, or one of the mistakes counts as right: the check could not tell them apart.
    """
    if right == 0:
        raise ValueError("the right answer is 0, expected another number: distances are relative")
    for number in mistakes:
        if math.isclose(number, right, rel_tol=tolerance):
            raise ValueError(f"mistake {number} counts as the right answer {right}; lower the tolerance")
    if answer is None:
        return "No answer yet."
    if math.isclose(answer, right, rel_tol=tolerance):
        return "Right."
    for number, hint in mistakes.items():
        if math.isclose(answer, number, rel_tol=tolerance):
            return f"Not yet. {hint}"
    if answer * right < 0:
        return "Not yet: the sign is wrong."
    return f"Not yet: {answer:.4g} is too {'large' if abs(answer) > abs(right) else 'small'} in size."
