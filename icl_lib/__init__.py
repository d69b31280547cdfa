"""A reproduction of Hagiwara (2026): least squares in one forward pass of a 408-weight transformer."""

from icl_lib.constructions import (
    appendix_a,
    closed_form,
    closed_form_law,
    gram_schmidt,
    gram_schmidt_law,
    one_step_descent,
    repaired,
    tilted,
    two_step_descent,
)
from icl_lib.prompts import Moments, Prompts, Tasks, sample_prompts, sample_tasks
from icl_lib.solvers import gradient_descent, least_squares, leverage, newton, ridge
from icl_lib.transformer import Architecture, Trace, Transformer, lsa
from icl_lib.weights import Weights, WeightsFileError

__all__ = [
    "Architecture",
    "Moments",
    "Prompts",
    "Tasks",
    "Trace",
    "Transformer",
    "Weights",
    "WeightsFileError",
    "appendix_a",
    "closed_form",
    "closed_form_law",
    "gradient_descent",
    "gram_schmidt",
    "gram_schmidt_law",
    "least_squares",
    "leverage",
    "lsa",
    "newton",
    "one_step_descent",
    "repaired",
    "ridge",
    "sample_prompts",
    "sample_tasks",
    "tilted",
    "two_step_descent",
]
