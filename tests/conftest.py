"""Shapes and types are checked at run time in the tests, in the modules whose inputs come from the package itself.

Programs are compiled fast and run slowly, here and in the processes that tests start: most of the time of the tests is
compilation. `JAX_DISABLE_MOST_OPTIMIZATIONS=0 XLA_FLAGS= make test` compiles them as users do.
"""

import contextlib
import importlib.metadata
import os
import warnings

from jaxtyping import install_import_hook

os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # both must stand before jax is imported
if importlib.metadata.version("jaxlib").startswith("0.10."):  # JAX 0.12 has dropped the first, and ends the process
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1")

_CHECKED = [
    *(
        f"nsmbayes.surrogates.{name}"
        for name in ("base", "exponential_family", "maf", "mdn", "mixture", "noisy_flow", "sbi", "scaling")
    ),
    "nsmbayes.losses",
    "nsmbayes.diagnostics.kernels",
    "nsmbayes.methods.baselines.summaries",
    "nsmbayes.methods.baselines.networks",
    "nsmbayes.posteriors.batch",
    "nsmbayes.calibration.closed_form",
    "nsmbayes.weights.base",
    "nsmbayes.scatter.location_scatter",
    "nsmbayes.scatter.batch",
    "nsmbayes.tasks.counts",
    "nsmbayes.tasks.gaussian",
    "nsmbayes.tasks.gnk",
    "nsmbayes.tasks.gnk_exact",
    "nsmbayes.tasks.pk",
    "nsmbayes.tasks.radio",
    "nsmbayes.tasks.sir",
]

with install_import_hook(_CHECKED, "beartype.beartype"):
    import nsmbayes as nsm
    import nsmbayes.methods
    import nsmbayes.tasks

import jax  # noqa: E402
import numpy as np  # noqa: E402
import pytest  # noqa: E402
from support.reference import random_family  # noqa: E402

from nsmbayes.training import loop  # noqa: E402


def pytest_configure(config):
    """Import ArviZ before there are workers: once a day it writes a file, and two that do so at once collide."""
    if not hasattr(config, "workerinput"):
        with contextlib.suppress(ImportError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import arviz  # noqa: F401


@pytest.fixture
def x64():
    """Double precision for the duration of a test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def optimised():
    """Programs are optimised in this module: they run for longer than that takes."""
    name = "jax_disable_most_optimizations"
    before = jax.config.values[name]
    jax.config.update(name, False)
    yield
    jax.config.update(name, before)


@pytest.fixture
def interrupted_training(monkeypatch):
    """Ctrl-C in training, after some epochs of all trainings together."""

    @contextlib.contextmanager
    def interrupted(after):
        epoch, calls = loop.run_epoch, []

        def counted(*args):
            calls.append(1)
            if len(calls) > after:
                raise KeyboardInterrupt
            return epoch(*args)

        with monkeypatch.context() as patch:
            patch.setattr(loop, "run_epoch", counted)
            yield

    return interrupted


@pytest.fixture(scope="session")
def trained_gnk():
    """A method trained briefly on g-and-k simulations: enough to be used, not to be good.

    Weights are by distance alone, which costs no fit of a model: tests/methods/test_conj_excess.py has the others.
    """
    task = nsm.tasks.get("gnk")
    method = nsm.NSMBayesConj(task.prior, excess=None, parameter_names=task.parameter_names)
    settings = nsm.TrainingSettings(max_epochs=3)
    return method.append_simulations(*task.simulate(20_000, seed=0)).train(0, settings=settings, progress=False)


@pytest.fixture(scope="session")
def random_method():
    """Untrained but usable methods of any size, with networks drawn at random."""

    def make(d_x: int, d_theta: int, *, seed: int = 0, scaling: str = "robust", noise_levels=(0.0,), **options):
        rng = np.random.default_rng(seed)
        root = rng.standard_normal((d_theta, d_theta))
        prior = nsm.GaussianPrior(rng.standard_normal(d_theta), root @ root.T + np.eye(d_theta))
        method = nsm.NSMBayesConj(prior, scaling=scaling, hidden=16, noise_levels=noise_levels, **options)
        asinh, noisy = scaling == "robust-asinh", noise_levels != (0.0,)
        return method.adopt(random_family(d_x, d_theta, seed=seed, asinh=asinh, noisy=noisy))

    return make
