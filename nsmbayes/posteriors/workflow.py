"""Workflow methods of every posterior: predictive draws, a verdict on the data, plots, and export."""

import functools
import html
import importlib
import textwrap
from typing import Any

from nsmbayes._internal import checks
from nsmbayes._internal.precision import Sheltered
from nsmbayes.errors import InputError
from nsmbayes.posteriors.arviz import as_arviz, as_frame, as_tree
from nsmbayes.posteriors.predictive import Predictive, predict
from nsmbayes.surrogates import Density
from nsmbayes.weights import Weighting

_PLOTTING = "nsmbayes.plotting"  # imported on demand: it depends on the posteriors
_STYLE = "font-variant-numeric: tabular-nums; border-collapse: collapse"


class SummaryText(str):
    """The text of a summary; notebooks display it with its line breaks."""

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self)}</pre>"


class Workflow(Sheltered):
    """Methods of a `Posterior` that compare it with its data, plot it and export it."""

    @property
    def density(self) -> Density | None:
        """The surrogate q(x | theta) if the posterior has one that is a density, otherwise None."""
        return None

    @property
    def weighting(self) -> Weighting | None:
        """The weighting of observations by their distance, or None if there is none."""
        return None

    @property
    def noisy_x(self: Any) -> Any:
        """The observations in the loss: with noise of one grid step if the method has `grid_steps`."""
        return self.x

    def losses_at(self: Any, theta: Any) -> Any:
        """The loss of each observation at many parameters (k, d), shape (k, n)."""
        raise InputError(f"{self.label} has no loss that is a sum over observations.")

    def predict(
        self: Any, simulator: Any = None, m: int = 200, *, rows: int | None = None, seed: int = 0
    ) -> Predictive:
        """Draw `m` predictive data sets, and compare them with the observed one by plots and p-values.

        Args:
            simulator: a simulator or a task; by default the surrogate of the posterior draws the data.
            m: number of data sets, each at a draw of the posterior.
            rows: number of rows per data set; by default as many as were observed, at most 500.
            seed: an integer.
        """
        return predict(self, simulator, m=m, rows=rows, seed=seed)

    def verdict(self: Any, simulator: Any = None, *, seed: int = 0) -> Any:
        """Outliers, or a wrong simulator? Compare the bulk of the data with predictive draws: a `diagnostics.Verdict`.

        By default the surrogate replaces the simulator. See `nsmbayes.diagnostics.judge` and docs/verdict.md.
        """
        if self.provenance.judge is None:
            raise InputError(
                f"This {self.label} posterior cannot be compared with a simulator: it was stored, or made by hand. Ask "
                "the one that build_posterior returns."
            )
        if simulator is None and checks.integer(seed, "seed") == 0:
            return self._usual_verdict
        return self.provenance.judge(self, simulator, seed=seed)

    @functools.cached_property
    def _usual_verdict(self: Any) -> Any:
        return self.provenance.judge(self, seed=0)

    def known_verdict(self: Any) -> Any:
        """The verdict from draws of the surrogate; None if the posterior has no surrogate to draw from."""
        if self.provenance.judge is None or self.density is None:
            return None
        try:
            return self.verdict()
        except InputError:  # a surrogate that cannot be drawn from
            return None

    def _about_bulk(self) -> list[str]:
        found = self.known_verdict()
        return [] if found is None else [textwrap.fill(f"Verdict: {found.explain()}", 110)]

    def plot(self, kind: str = "marginals", **options: Any) -> Any:
        """Plot a matplotlib figure of a kind: "marginals", "pairs", "weights", "predictive", "influence", and others.

        `options` are those of `nsmbayes.plotting.plot_<kind>`.
        """
        figures = importlib.import_module(_PLOTTING).FIGURES
        return figures[checks.choice(kind, "kind", tuple(figures))](self, **options)

    def to_arviz(
        self: Any,
        draws: int = 1000,
        *,
        chains: int = 4,
        seed: int = 0,
        log_likelihood: bool = True,
        predictive: int = 0,
        simulator: Any = None,
    ) -> Any:
        """Convert to an ArviZ InferenceData, or with ArviZ 1 or later to an xarray DataTree.

        Needs the extra `nsmbayes[arviz]`. A sampled posterior exports the draws of its chains; `draws` and `chains`
        are for a posterior in closed form.

        Groups: posterior, prior, observed_data, sample_stats (weights, learning rate, R-hat, acceptance), log_prior,
        and log_likelihood, which is minus beta times the loss of each observation. Power scaling and influence need
        it; it is not a likelihood, and its `loo` is not an expected log predictive density.

        Args:
            draws: draws of each chain, for a posterior in closed form.
            chains: number of chains, for a posterior in closed form.
            seed: for all random draws.
            log_likelihood: whether to compute the log_likelihood group, which is the slow part.
            predictive: number of data sets in each predictive group, prior and posterior; 0 for none.
            simulator: draws the predictive data sets; by default the surrogate does.
        """
        options: dict[str, Any] = {"log_likelihood": log_likelihood, "predictive": predictive, "simulator": simulator}
        return as_arviz(self, draws, chains, seed, **options)

    def to_xarray(self: Any, draws: int = 1000, *, chains: int = 4, seed: int = 0, **options: Any) -> Any:
        """Convert to an xarray DataTree with the groups and options of `to_arviz`, without ArviZ. Needs xarray."""
        return as_tree(self, draws, chains, seed, **options)

    def to_pandas(self: Any, draws: int = 1000, *, chains: int = 4, seed: int = 0) -> Any:
        """Convert the draws to a pandas DataFrame with one row per draw, indexed by chain and draw. Needs pandas."""
        return as_frame(self.chains(draws, chains, seed), self.parameter_names)

    def _repr_html_(self: Any) -> str:
        head = ("parameter", "mean", "sd", "2.5 %", "97.5 %")
        rows = [
            (name, *(f"{value:.3f}" for value in (self.mean[j], self.std[j], *self.interval(j))))
            for j, name in enumerate(self.parameter_names)
        ]
        lines = "".join("<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
        cells = "".join(f"<th>{name}</th>" for name in head)
        said = "".join(f"<p>{html.escape(text)}</p>" for text in self.warnings)
        return (
            f"<p><b>{html.escape(self.label)}</b>: {self.n:,} observations, &beta; = {self.beta:.4g}</p>"
            f'<table style="{_STYLE}"><thead><tr>{cells}</tr></thead><tbody>{lines}</tbody></table>{said}'
        )
