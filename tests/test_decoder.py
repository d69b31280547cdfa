"""The decoder layer against its equations in loops."""

from dataclasses import replace
from math import erf

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from icl_lib.decoder import Decoder, DecoderLayer, LayerShape
from tests.arrays import close, generator, seeds


def gelu(v):
    return v * 0.5 * (1 + np.vectorize(erf)(v / np.sqrt(2)))


def normalised(z):
    centred = z - z.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + 1e-3)


@settings(max_examples=15, deadline=None)
@given(seeds, st.booleans(), st.booleans())
def test_a_layer_is_what_its_equations_say(seed, null_slot, norm_first):
    rng = generator(seed)
    switches = {"null_slot": null_slot, "norm_first": norm_first}
    shape = LayerShape(width=5, heads=2, head_width=3, key_width=2, units=4, eps=1e-3, **switches)
    layer = DecoderLayer(shape)
    for parameter in layer.parameters():
        parameter.data = torch.tensor(rng.standard_normal(parameter.shape))
    w = {name: parameter.detach().numpy() for name, parameter in layer.named_parameters()}
    h = rng.standard_normal((2, 4, 5))
    read = normalised(h) if norm_first else h
    expected = np.empty_like(h)
    for m in range(2):
        for i in range(4):
            heads = []
            for j in range(2):
                scores = [
                    np.exp((w["W_Q"][j] @ read[m, i]) @ (w["W_K"][j] @ read[m, k])) for k in range(i + 1)
                ]
                total = sum(scores) + (1 if null_slot else 0)
                heads.append(sum(s / total * (w["W_V"][j] @ read[m, k]) for k, s in enumerate(scores)))
            z = h[m, i] + w["W_F"] @ np.concatenate(heads)
            expected[m, i] = z + w["W_2"] @ gelu(w["W_1"] @ normalised(z))
    close(layer(torch.tensor(h)).detach().numpy(), expected, 1e-12)


@pytest.mark.parametrize("change", [{"width": 0}, {"heads": 0}, {"units": -1}, {"eps": -1.0}])
def test_a_layer_refuses_impossible_sizes(change):
    with pytest.raises(ValueError, match=rf"{next(iter(change))} is .*expected at least"):
        replace(LayerShape(4, 1, 4, 4, 4), **change)


def test_a_decoder_refuses_other_tokens(unchecked):
    decoder = Decoder(2, 3, [DecoderLayer(LayerShape(4, 1, 4, 4, 4))])
    for T, p in ((4, 2), (3, 3)):
        with pytest.raises(ValueError, match=f"{T} columns of {p} numbers, expected at most 3 columns of 2"):
            decoder(torch.zeros(1, T, p, dtype=torch.float64))
