"""`TrainingConfig`: every choice behind a trained network, stated by the paper or not, with its reason."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from icl_lib.prompts import Layout, token_shape
from icl_lib.transformer import Architecture

Count = Annotated[int, Field(ge=1)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Fraction = Annotated[float, Field(ge=0, lt=1)]


class TrainingConfig(BaseModel):
    """All settings of one training run; the same config gives the same bits on every processor.

    Frozen; an unknown field or a value of the wrong type is refused with pydantic's `ValidationError`, which
    names the field, the value and what was expected.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    seed: int = Field(ge=0, lt=2**63, description="Draws data, first weights and shuffles; new in each run.")

    # Prompts
    n_context: int = Field(50, ge=3, description="N. Stated.")
    n_train: Count = Field(5000, description="M, training prompts an epoch passes over. Stated.")
    fresh: bool = Field(
        False,
        description="Draw the training prompts anew in each epoch; none is seen twice. The paper's stay.",
    )
    n_validation: Count = Field(1000, description="Prompts that choose the weights to keep. Stated.")
    noise_std: NotNegative = Field(0.2, description="σ of the noise in y: σ² = 0.04. Stated.")
    query_std: NotNegative = Field(1.0, description="Standard deviation of the query. Stated.")
    x_std: NotNegative = Field(1.0, description="Standard deviation of the context inputs. Stated.")
    target: Literal["least_squares", "noisy", "noiseless"] = Field(
        "least_squares",
        description="What to predict: the least squares answer (stated), an observed y, or the line itself.",
    )
    prompt: Layout = Field("paper", description="How a prompt becomes tokens. Stated: eq. (1).")

    # Network
    dim: Count = Field(4, description="D. Stated.")
    layers: Count = Field(2, description="L. Stated.")
    heads: Count = Field(2, description="K. Stated.")
    layer_norm: bool = Field(True, description="Normalise before the skip. Stated; Appendix B goes without.")
    output_bias: bool = Field(False, description="Train b_out. The paper's experiment has no biases.")
    eps: NotNegative = Field(1e-5, description="Layer norm's eps. Not stated: torch.nn.LayerNorm's default.")
    attention_scale: Positive = Field(
        1.0,
        description="Factor on H, absorbed into W2 on export. The paper has none; 1/N suits no layer norm.",
    )
    init_scale: NotNegative = Field(
        1.0,
        description="First weights: uniform within ± this/√(fan-in). Not stated: 1 is torch.nn.Linear's.",
    )
    dtype: Literal["float32", "float64"] = Field(
        "float32", description="Arithmetic of the training. Not stated: PyTorch's default."
    )

    # Loss and optimiser
    l1: NotNegative = Field(0.0, description="λ of the penalty on W_in and W_out. Not stated; see `paper`.")
    l1_reduction: Literal["sum", "mean"] = Field(
        "sum",
        description="λ times the sum of |w|, or each matrix's mean. Not stated: the usual norm is a sum.",
    )
    l1_in_validation: bool = Field(
        False, description="Add the penalty to the validation error. Not stated: an error is an error."
    )
    optimiser: Literal["adam", "adamw", "sgd"] = Field(
        "adam", description="Not stated: the usual choice for transformers."
    )
    learning_rate: Positive = Field(0.005, description="Stated.")
    learning_rate_decay: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0, description="Factor on the learning rate after each epoch. None is stated."
    )
    beta1: Fraction = Field(0.9, description="Adam's first average. Not stated: PyTorch's default.")
    beta2: Fraction = Field(0.999, description="Adam's second average. Not stated: PyTorch's default.")
    adam_eps: Positive = Field(1e-8, description="Adam's eps. Not stated: PyTorch's default.")
    momentum: Fraction = Field(0.0, description="Of sgd alone. PyTorch's default.")
    weight_decay: NotNegative = Field(0.0, description="None is stated: the penalty is the ℓ1 one.")

    # Schedule
    batch_size: Count = Field(500, description="Prompts a step. Stated.")
    epochs: Count = Field(20000, description="Passes over the training prompts. Stated.")
    validate_every: Count = Field(
        100, description="Epochs between validations, the last epoch always among them. Stated."
    )
    shuffle: bool = Field(True, description="New batches in each epoch. Not stated: the usual choice.")

    @model_validator(mode="after")
    def _fits(self) -> TrainingConfig:
        if self.batch_size > self.n_train:
            raise ValueError(
                f"batch_size is {self.batch_size} but there are n_train = {self.n_train} prompts; "
                "lower batch_size or draw more prompts"
            )
        return self

    @classmethod
    def paper(cls, seed: int, **changes: object) -> TrainingConfig:
        """The paper's training (section 4.1) from this seed; `changes` override single fields.

        λ = 1e-4 is what chapter 5's rule picks: its errors agree best with Table 1's of the seven tried.
        """
        return cls.model_validate({"seed": seed, "l1": 1e-4} | changes)

    @property
    def id(self) -> str:
        """16 hexadecimal digits, a hash of the seed and of the fields that differ from their defaults.

        A field added later, at its default, renames no old run.
        """
        fields = type(self).model_fields
        changed = {name: value for name, value in self if name == "seed" or value != fields[name].default}
        return hashlib.sha256(json.dumps(changed, sort_keys=True).encode()).hexdigest()[:16]

    @property
    def architecture(self) -> Architecture:
        """Sizes and switches of the network to train."""
        rows, features = token_shape(self.prompt, self.n_context)
        return Architecture(self.dim, self.layers, self.heads, rows, features, self.layer_norm)

    @property
    def numpy_dtype(self) -> type:
        """np.float32 or np.float64."""
        return {"float32": np.float32, "float64": np.float64}[self.dtype]
