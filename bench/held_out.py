"""Held-out log density of surrogates with eight columns, compared with the masked autoregressive flow of sbi."""

import contextlib
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

import nsmbayes as nsm
from bench import sbi
from bench.timing import Row, timed
from nsmbayes.interop.sbi import adopt
from nsmbayes.methods.likelihood import LikelihoodMethod

MISSING = sbi.MISSING.replace("'sbi'", "'held-out'")
TINY = {"simulations": 600, "held_out": 100, "max_epochs": 2, "steps": 20}
PRIOR = np.array([[0.0, 0.3], [0.0, 0.3], [-1.0, 0.4], [-1.2, 0.4]])
"""Means and standard deviations: log growth, log death, log self-limitation, log noise."""
_DT = 0.1


def run(
    simulations: int = 50_000, held_out: int = 5_000, max_epochs: int | None = None, steps: int = 300, seed: int = 0
) -> list[Row]:
    """Train each surrogate with its default settings on the same simulations; rows have the difference to sbi."""
    prior = nsm.GaussianPrior(PRIOR[:, 0], PRIOR[:, 1] ** 2)
    theta, fresh = (np.asarray(prior.sample((m,), seed=10 * seed + i)) for i, m in enumerate((simulations, held_out)))
    x, fresh_x = (summaries(t, steps, seed=10 * seed + i) for i, t in enumerate((theta, fresh)))
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as logs, contextlib.chdir(logs):
        warnings.simplefilter("ignore")  # sbi writes logs, and warns about standardisation
        with contextlib.redirect_stdout(sys.stderr):
            return _measure(prior, theta, x, fresh, fresh_x, max_epochs)


def summaries(theta: Float[np.ndarray, "m 4"], steps: int, *, seed: int) -> Float[np.ndarray, "m 8"]:
    """Summaries of a predator-prey model with noise on the log scale: log means, log sds, correlations.

    Correlations at lag 10 of each species, at lag 0 between them, and of the first with the second 10 steps later, all
    as Fisher's z.
    """
    rng = np.random.default_rng([seed, 5])
    growth, death, limit, noise = np.exp(theta).T
    u, v, seen = rng.normal(0, 0.3, len(theta)), rng.normal(0, 0.3, len(theta)), []
    for _ in range(steps):
        du = growth - np.exp(v) - limit * np.exp(u)
        dv = np.exp(u) - death - 0.1 * np.exp(v)
        u = np.clip(u + _DT * du + np.sqrt(_DT) * noise * rng.standard_normal(len(theta)), -6, 3)
        v = np.clip(v + _DT * dv + np.sqrt(_DT) * noise * rng.standard_normal(len(theta)), -6, 3)
        seen.append((u, v))
    a, b = np.array(seen).transpose(1, 2, 0)
    lag = min(10, steps // 2)
    return np.stack(
        [
            a.mean(axis=1),
            b.mean(axis=1),
            np.log(a.std(axis=1)),
            np.log(b.std(axis=1)),
            _z(a[:, lag:], a[:, :-lag]),
            _z(b[:, lag:], b[:, :-lag]),
            _z(a, b),
            _z(a[:, :-lag], b[:, lag:]),
        ],
        axis=1,
    )


def log_probs(
    method: LikelihoodMethod, theta: Float[np.ndarray, "m p"], x: Float[np.ndarray, "m d"]
) -> Float[np.ndarray, " m"]:
    """Log densities of held-out simulations."""
    with jax.enable_x64(True):
        return np.asarray(jax.vmap(method.density.log_prob)(jnp.asarray(theta), jnp.asarray(x)))


def _z(a: Float[np.ndarray, "m t"], b: Float[np.ndarray, "m t"]) -> Float[np.ndarray, " m"]:
    a, b = (one - one.mean(axis=1, keepdims=True) for one in (a, b))
    return np.arctanh((a * b).sum(axis=1) / np.sqrt((a**2).sum(axis=1) * (b**2).sum(axis=1)))


def _measure(
    prior: nsm.GaussianPrior,
    theta: Float[np.ndarray, "m 4"],
    x: Float[np.ndarray, "m 8"],
    fresh: Float[np.ndarray, "k 4"],
    fresh_x: Float[np.ndarray, "k 8"],
    max_epochs: int | None,
) -> list[Row]:
    import torch  # pyright: ignore[reportMissingImports]
    from sbi.inference import NLE as SbiNLE  # pyright: ignore[reportMissingImports]

    found: dict[str, Float[np.ndarray, " k"]] = {}

    def row(what: str, build: Callable[[], tuple[LikelihoodMethod, int]]) -> Row:
        made = []
        seconds, cpu = timed(lambda: made.append(build()))
        method, epochs = made[0]
        found[what] = log_probs(method, fresh, fresh_x)
        more = found[what] - found[next(iter(found))]
        made_row = Row(what=what, first_s=seconds, later_s=seconds, later_cpu_s=cpu, repeats=1)
        made_row.detail.update(
            epochs=epochs,
            held_out_log_prob=float(found[what].mean()),
            more_than_sbi=float(more.mean()),
            standard_error=float(more.std() / np.sqrt(len(more))),
        )
        print(f"  {what}: {seconds:.0f} s, {cpu:.0f} s of processor time, {made_row.detail}", flush=True)
        return made_row

    def theirs() -> tuple[LikelihoodMethod, int]:
        torch.manual_seed(0)
        mean, covariance = (torch.as_tensor(a, dtype=torch.float32) for a in (prior.mean, prior.covariance))
        trainer = SbiNLE(torch.distributions.MultivariateNormal(mean, covariance))
        trainer.append_simulations(*(torch.as_tensor(a, dtype=torch.float32) for a in (theta, x)))
        estimator = trainer.train(**({} if max_epochs is None else {"max_num_epochs": max_epochs}))
        return adopt(nsm.NLE(prior), estimator, theta, x), trainer.summary["epochs_trained"][-1]

    def ours(surrogate: str) -> tuple[LikelihoodMethod, int]:
        method = nsm.NLE(prior, surrogate=surrogate).append_simulations(theta, x)
        settings = method.default_training(x.shape[1])
        settings = settings if max_epochs is None else replace(settings, max_epochs=max_epochs)
        history = method.train(0, settings=settings, progress=False).history
        assert history is not None
        return method, len(history.train_loss)

    rows = [row("sbi: flow (MAF)", theirs)]
    rows[0].detail.update(sbi=version("sbi"), torch=version("torch"), torch_threads=torch.get_num_threads())
    return [*rows, row("mixture, the default", lambda: ours("mdn")), row("flow", lambda: ours("maf"))]
