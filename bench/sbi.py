"""NLE and NSM-Bayes compared with NLE in sbi: same simulations, same contaminated data, same number of draws."""

import contextlib
import json
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import nsmbayes as nsm
from bench.timing import Row, side_by_side, timed
from nsmbayes.interop.sbi import adopt
from nsmbayes.methods import Method
from nsmbayes.methods.likelihood import LikelihoodMethod
from nsmbayes.posteriors import SampledPosterior

MISSING = (
    "" if find_spec("sbi") else "the benchmark 'sbi' needs sbi and torch, which are not here: run `make bench-sbi`"
)
CHAINS = 4

TINY = {
    "simulations": 1_000,
    "n": 60,
    "draws": 40,
    "repeats": 1,
    "max_epochs": 3,
    "sampler": {"warmup": 20},
    "sbi_sampler": {"num_chains": 2, "warmup_steps": 2, "init_strategy": "proposal"},
    "partial": "",
}


def run(
    simulations: int = 100_000,
    n: int = 100,
    draws: int = 500,
    repeats: int = 3,
    max_epochs: int | None = None,
    sampler: dict[str, Any] | None = None,
    sbi_sampler: dict[str, Any] | None = None,
    partial: str = "sbi-partial.json",
) -> list[Row]:
    """Training and posteriors on g-and-k, both packages with their defaults except for the number of draws.

    `max_epochs`, `sampler` (options of this package's methods) and `sbi_sampler` are for tiny sizes. sbi does not
    compile, so its first call and later ones are the same, and it is measured once. Rows of this package have the
    factor by which they are faster than sbi; `partial` is a file in bench/results with the rows so far.
    """
    # expected warnings: outliers outside the simulations, and a flow in one dimension is a Gaussian. sbi writes logs.
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as logs, contextlib.chdir(logs):
        warnings.simplefilter("ignore")
        with contextlib.redirect_stdout(sys.stderr):
            rows = _Rows(Path(__file__).parent / "results" / partial if partial else None)
            _measure(rows, simulations, n, draws, repeats, max_epochs, sampler or {}, sbi_sampler or {})
    rows.finish()
    return rows


class _Rows(list[Row]):
    """Rows that are printed and stored as they are measured."""

    def __init__(self, file: Path | None):
        self.file = file

    def append(self, row: Row) -> None:
        super().append(row)
        print(f"  {row.what}: {row.first_s:.1f} s, later {row.later_s:.1f} s {row.detail}", flush=True)
        if self.file is not None:
            self.file.write_text(json.dumps([row.as_json() for row in self], indent=2) + "\n")

    def finish(self) -> None:
        if self.file is not None:
            self.file.unlink()


def _measure(
    rows: _Rows,
    simulations: int,
    n: int,
    draws: int,
    repeats: int,
    max_epochs: int | None,
    sampler: dict[str, Any],
    sbi_sampler: dict[str, Any],
) -> None:
    import torch  # pyright: ignore[reportMissingImports]
    from sbi.inference import NLE as SbiNLE  # pyright: ignore[reportMissingImports]

    task = nsm.tasks.get("gnk")
    theta, x = task.simulate(simulations, seed=0)
    fresh = task.simulate(min(simulations, 10_000), seed=1)
    data = [task.observe(n, seed=2 + i).x for i in range(repeats + 1)]
    options: dict[str, Any] = {"chains": CHAINS, "draws": draws // CHAINS} | sampler
    mean, covariance = (torch.as_tensor(a, dtype=torch.float32) for a in (task.prior.mean, task.prior.covariance))

    torch.manual_seed(0)
    trainer = SbiNLE(torch.distributions.MultivariateNormal(mean, covariance))
    trainer.append_simulations(*(torch.as_tensor(a, dtype=torch.float32) for a in (theta, x)))
    limit = {} if max_epochs is None else {"max_num_epochs": max_epochs}
    estimators = []
    seconds, cpu = timed(lambda: estimators.append(trainer.train(**limit)))
    sbi_training = Row(what="sbi: training NLE (MAF)", first_s=seconds, later_s=seconds, repeats=1)
    theirs = adopt(nsm.NLE(task.prior, **options), estimators[0], theta, x)
    sbi_training.detail.update(
        epochs=trainer.summary["epochs_trained"][-1],
        cpu_s_with_compilation=cpu,
        held_out_log_prob=_held_out(theirs, *fresh),
        sbi=version("sbi"),
        torch=version("torch"),
        torch_threads=torch.get_num_threads(),
    )
    rows.append(sbi_training)

    def trained(name: str, build: Callable[..., nsm.NLE]) -> nsm.NLE:
        method = build(task.prior, **options).append_simulations(theta, x)
        settings = method.default_training(x.shape[1])
        settings = settings if max_epochs is None else replace(settings, max_epochs=max_epochs)
        jax.clear_caches()
        _, cpu = timed(lambda: method.train(0, settings=settings, progress=False))
        history = method.history
        assert history is not None
        running = history.seconds - history.compile_seconds
        detail = {
            "epochs": len(history.train_loss),
            "cpu_s_with_compilation": cpu,
            "held_out_log_prob": _held_out(method, *fresh),
        }
        row = Row(what=f"training {name}", first_s=history.seconds, later_s=running, repeats=1, detail=detail)
        rows.append(_beside(row, sbi_training))
        return method

    nle = trained("NLE (MDN)", nsm.NLE)
    paper = trained("NLE.paper (MAF)", nsm.NLE.paper)
    robust = nsm.NSMBayes(task.prior, **options).adopt(nle)

    posterior = trainer.build_posterior(mcmc_parameters=sbi_sampler)
    observed = torch.as_tensor(data[0], dtype=torch.float32)
    drawn = []
    seconds, cpu = timed(lambda: drawn.append(posterior.sample((draws,), x=observed)))
    sbi_sampling = Row(
        what=f"sbi: {draws} draws, NLE by slice sampling", first_s=seconds, later_s=seconds, later_cpu_s=cpu, repeats=1
    )
    # an upper bound, as if the draws of sbi were independent
    sbi_sampling.detail.update(mse=nsm.metrics.mse(drawn[0], task.theta_true), effective_draws_per_s=draws / seconds)
    rows.append(sbi_sampling)
    conj = nsm.NSMBayesConj(task.prior).append_simulations(theta, x)
    brief = None if max_epochs is None else nsm.TrainingSettings(max_epochs=max_epochs)
    conj.train(0, settings=brief, progress=False)

    for name, method in {
        "NLE": nle,
        "NLE.paper": paper,
        "NLE with the network of sbi": theirs,
        "NSM-Bayes, calibrated": robust,
        "NSM-Bayes-conj, calibrated": conj,
    }.items():
        kept: dict[int, tuple[Any, np.ndarray]] = {}

        def call(i: int, method: Method = method, kept: dict[int, Any] = kept) -> None:
            posterior = method.build_posterior(data[i], seed=i)
            kept[i] = posterior, posterior.sample((draws,), seed=i)

        (row,) = side_by_side({f"{draws} draws, {name}": call}, repeats=repeats)
        posterior, sampled = kept[0]
        row.detail.update(mse=nsm.metrics.mse(sampled, task.theta_true))
        effective = draws  # draws of a posterior in closed form are independent
        if isinstance(posterior, SampledPosterior) and posterior.result is not None:
            effective = float(posterior.result.ess_bulk.min())
            row.detail.update(smallest_ess=effective, largest_r_hat=float(posterior.result.r_hat.max()))
        row.detail.update(
            effective_draws_per_s=effective / row.later_s,
            times_sbi_effective_draws_per_s=effective / row.later_s * sbi_sampling.later_s / draws,
            times_sbi_effective_draws_per_cpu_s=effective / (row.later_cpu_s or row.later_s) * cpu / draws,
        )
        rows.append(_beside(row, sbi_sampling))


def _beside(row: Row, theirs: Row) -> Row:
    row.detail["times_faster_than_sbi_first"] = theirs.first_s / row.first_s
    row.detail["times_faster_than_sbi_later"] = theirs.later_s / row.later_s
    row.detail["times_less_processor_time_than_sbi"] = _processor_time(theirs) / _processor_time(row)
    return row


def _processor_time(row: Row) -> float:
    """Processor time, which is less distorted by a busy machine than wall time; for training, with compilation."""
    return row.detail["cpu_s_with_compilation"] if row.later_cpu_s is None else row.later_cpu_s


def _held_out(method: LikelihoodMethod, theta: np.ndarray, x: np.ndarray) -> float:
    """Mean log density of held-out simulations: the quality of the trained density."""
    density = method.density
    assert density is not None
    with jax.enable_x64(True):
        return float(jax.vmap(density.log_prob)(jnp.asarray(theta), jnp.asarray(x)).mean())
