"""The same bits for every processor and process, and never a kernel left from other sizes."""

import os
import re
import subprocess
import sys

import joblib
import llvmlite.binding as llvm  # type: ignore[import-untyped]
import numpy as np
import pytest

from icl_lib.engine import Trainer, TrainingConfig
from icl_lib.engine.buffers import make_parameters
from icl_lib.engine.layers import LANES
from icl_lib.study import load_table
from icl_lib.verify import verify

EPOCHS = 300  # 3000 steps
DIGEST = "d3150d34d343b20efcc09c9cc0eef628fde3ae4af118bb3c9ff2dd1c24214e17"
PROGRAM = f"""
from icl_lib.engine import Trainer, TrainingConfig
trainer = Trainer(TrainingConfig(seed=1, l1=1e-4))
trainer.advance({EPOCHS})
print(trainer.weights.digest)
"""
# Vectors of 4, 4, 8 and 16 prompts; the last two could fuse multiply and add.
PROCESSORS = {"generic": "sse2", "nehalem": "sse4.2", "haswell": "avx2", "skylake-avx512": "avx512f"}
ABLE = [name for name, feature in PROCESSORS.items() if llvm.get_host_cpu_features().get(feature)]


@pytest.fixture(scope="module")
def trained():
    trainer = Trainer(TrainingConfig(seed=1, l1=1e-4))
    trainer.advance(EPOCHS)
    return trainer


def test_bits_on_this_processor(trained):
    assert trained.weights.digest == DIGEST


@pytest.mark.parametrize("processor", ABLE)
def test_bits_compiled_for(processor):
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=os.environ | {"NUMBA_CPU_NAME": processor},
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.strip() == DIGEST


def test_the_ten_runs_begin_as_committed(root):
    ids = [TrainingConfig.paper(seed).id for seed in range(1, 11)]
    digests = list(verify(root / "results" / "penalty", ids, workers=1))
    assert [name for name, _, _ in digests] == ids
    assert all(found == expected for _, expected, found in digests)


def digest(seed):
    trainer = Trainer(TrainingConfig(seed=seed))
    trainer.advance(20)
    return trainer.weights.digest


def test_bits_do_not_depend_on_the_number_of_processes():
    here = [digest(1), digest(2)]
    assert joblib.Parallel(n_jobs=2)(joblib.delayed(digest)(seed) for seed in (1, 2)) == here
    assert here[0] != here[1]


def test_no_multiply_and_add_is_fused(trained):
    for kernel in (trained._pass, trained._network.predict):
        for assembly in kernel.inspect_asm().values():
            assert re.search(r"\bv?mulps\b", assembly)
            assert not re.search(r"\bvfn?m(add|sub)", assembly)


def test_the_order_of_sums_shows_in_the_bits(trained):
    # The same prompts in other lanes: were sums not bound to an order, digests could not be compared at all.
    data, config, rng = trained.train_records, trained.config, np.random.default_rng(0)
    grads = []
    for order in (np.arange(LANES), rng.permutation(LANES)):
        grad = make_parameters(np.zeros_like(trained.theta), config.architecture)
        parts = make_parameters(trained.theta, config.architecture)
        trained._network.gradient(parts, data, order, grad, trained._work)
        grads.append(grad.flat)
    assert np.allclose(grads[0], grads[1], rtol=1e-3, atol=1e-5)
    assert (grads[0] != grads[1]).any()


STALE = """
import sys
import numpy as np
from icl_lib import sample_prompts
from icl_lib.engine import Trainer, TrainingConfig
from icl_lib.engine.buffers import make_records
for sizes in sys.argv[1:]:
    n_context, dim, eps = sizes.split(",")
    config = TrainingConfig(seed=1, n_context=int(n_context), dim=int(dim), eps=float(eps), layers=1, heads=1)
    trainer, prompts = Trainer(config), sample_prompts(40, int(n_context), seed=2)
    answer = trainer.weights.predict(prompts)
    error = trainer.error(make_records(prompts.tokens(), answer, np.float32), trainer.theta)
    assert error < 1e-12 + 1e-10 * np.mean(answer**2), (sizes, error)
"""


@pytest.mark.parametrize("sizes", [["5,3,1e-5", "6,3,1e-5", "6,2,1e-5", "6,2,0.5"], ["6,4,1e-5"]])
def test_no_kernel_is_left_from_other_sizes(tmp_path_factory, sizes):
    # In one process and, by the shared folder for kernels, across processes.
    folder = tmp_path_factory.getbasetemp() / "kernels"
    folder.mkdir(exist_ok=True)
    environment = os.environ | {"NUMBA_CACHE_DIR": str(folder)}
    subprocess.run([sys.executable, "-c", STALE, *sizes], env=environment, check=True)
    assert list(folder.rglob("*.nb*")) == []


STUDIES = [
    "seeds",
    "seeds_fitted",
    "wide_queries",
    "targets",
    "choices",
    "layouts",
    "no_layer_norm",
    "shapes",
]


@pytest.mark.parametrize("name", STUDIES)
def test_a_run_of_every_study_is_reproduced(root, name):
    first = load_table(root / "results" / name).id[0]
    ((_, committed, found),) = verify(root / "results" / name, [first], workers=1)
    assert committed == found
