"""Write docs/results.md from the stored rows: no number of ours on that page is typed by hand.

`python docs/make_results.py` reads every file of results/, each written by `nsmbayes reproduce --json` and called
<experiment>-<preset>.json, and the pictures of docs/images/results. With `--check` it only tells whether the page is up
to date; with `--figures FOLDER` it first takes the pictures of these experiments from what `nsmbayes reproduce --out
FOLDER` has drawn.
"""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image

from nsmbayes.experiments import catalogue, paper, tables
from nsmbayes.experiments.figures import FIGURES
from nsmbayes.experiments.results import ExperimentResult
from nsmbayes.experiments.rows import Row, column, display_name, mean, moments

DOCS = Path(__file__).parent
RESULTS, PICTURES = DOCS.parent / "results", DOCS / "images" / "results"
_WIDEST, _COLOURS = 1200, 256  # of a picture: pixels, and what the colours of eight methods and their edges need

_BETTER_MODEL = (
    "in one dimension the paper's flow is a conditional Gaussian, a biased model of g-and-k data "
    "([errata](errata.md)); our default is a mixture density network"
)
_MOMENTS = "[sample moments](#the-scatter-behind-the-weight-on-g-and-k-data-robust-and-not) in place of the robust ones"
_INFLATED = (
    "outliers inflate the sample scatter, which is the unit of all distances here; a plateau weight then gives them "
    "weight"
)
_PRIOR = "the paper's figure is the prior's, as said below"
REASONS = {
    ("gnk", "nle", "default"): _BETTER_MODEL,
    ("gnk", "nsm-bayes", "default"): f"{_BETTER_MODEL}, and the loss is summed over noise levels",
    ("gnk", "nsm-bayes", "paper"): (
        f"the published numbers look like those of {_MOMENTS}. Most of our slice-sampled chains do not meet our "
        "criterion of convergence"
    ),
    ("gnk", "npl-mmd", "default"): (
        "the descents start at the mean of the prior instead of far away, with a falling learning rate of 0.1 instead "
        "of a constant one of 1. In ten steps, which is what the budget allows, they do not move far from there or "
        "from each other: the error is small because the prior is near the truth, and no region is large enough"
    ),
    ("gnk", "npl-mmd", "paper"): (
        "we do not know why the published coverage is lower. The descents start where those of the published code do. "
        "Draws that share random numbers would be [narrow](baselines.md#what-each-assumes-and-when-it-breaks)"
    ),
    ("sir", "nsm-bayes-conj", "paper"): (
        "the calibration ends at its smallest learning rate; the published error is about what we get near the rate "
        "from which it starts ([errata](errata.md#calibration))"
    ),
    ("sir-ablation", "nsm-bayes-conj, sample", "default"): _PRIOR,
    ("sir-ablation", "nsm-bayes-conj, sample, one level", "default"): _PRIOR,
    ("gnk-ablation", "nsm-bayes, mcd", "default"): "as in Table 1",
    ("gnk-ablation", "nsm-bayes, sample", "default"): _INFLATED,
    ("gnk-ablation", "nsm-bayes-conj, sample", "default"): _INFLATED,
    ("gnk-ablation", "nsm-bayes, mcd", "paper"): "the published numbers look like those of sample moments",
}

ABOUT = {
    "gnk": (
        "As in the paper's Table 1, a guarantee is a proof that outliers cannot move the posterior without bound; what "
        "is certified for a fitted network is a different question ([guarantees](guarantees.md)). With our choices "
        "MMD² is taken to the exact posterior given the data before contamination, so it cannot be compared with the "
        "paper's, which is taken to NLE, as with `--preset paper`. The weights were chosen on other g-and-k data sets, "
        "[some of them contaminated in the same way](noise-levels.md#the-cutoff-radius). The numbers of the other "
        "methods are explained in [the other robust methods](baselines.md)."
    ),
    "sir": "MMD² is taken to NLE on the clean data with the same network.",
    "sir-heavy": "Standard Cauchy noise is added to the summaries; the paper shows a figure and prints no numbers.",
    "sir-ablation": (
        "*Sample* replaces the robust location and scatter of the weight (*mcd*), and of the whitening, by the sample "
        "mean and covariance. *One level* is `noise_levels=(0,)`, which leaves out the noise levels, as the paper "
        "does; it also has another weight (IMQ instead of plateau), the paper's training and no lower bound on how "
        "narrow the posterior gets."
    ),
    "gnk-ablation": (
        "The paper says that the location and scatter behind its weight are robust (*mcd*), but the published "
        "configuration for these data switches that off. With the sample mean and covariance (*sample*) NSM-Bayes "
        "with the paper's choices agrees with the paper, coverage included, and all its learning rates increase, as "
        "the paper's text says. With our choices robust moments are essential."
    ),
    "gnk-npl-mmd": (
        "The paper's caption has 2.56e7 simulations; its settings, which are used here, multiply to 2.56e8. As in the "
        "paper, more simulations bring theta_1 and theta_2 near the truth, but not theta_3; here also not theta_4."
    ),
    "radio": "MMD² is taken to NLE on the clean data. The paper shows a figure and prints inference times only.",
}


def page() -> str:
    """The whole page."""
    results: dict[str, list[ExperimentResult]] = {}
    for path in sorted(RESULTS.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        result = ExperimentResult.from_json(catalogue.get(document["experiment"]), document)
        if path.stem != _stem(result):
            raise ValueError(f"{path.name} holds {_stem(result)}; it should be called {_stem(result)}.json.")
        results.setdefault(result.experiment.name, []).append(result)
    parts = [
        "# Results",
        "Every repeat has its own seed and therefore its own data, and its own simulations and networks unless stated "
        f"otherwise. {tables.LEGENDS['scores']} The paper's seconds were measured on an Apple M4. "
        "Rows of NSM-Bayes and NSM-Bayes-conj use earlier defaults: weights by distance alone (`excess=None`), "
        "and with several columns other radii and the MCD as scatter.",
    ]
    for name in catalogue.EXPERIMENTS:
        if name in results:
            parts += section(results[name])
    return "\n\n".join(parts) + "\n"


def section(results: Sequence[ExperimentResult]) -> list[str]:
    """What is said and shown of one experiment, which may have been run with several presets."""
    experiment = results[0].experiment
    title = experiment.title[0].upper() + experiment.title[1:]
    parts = [f"## {title}", *(_settings(result) for result in results)]
    parts += [ABOUT[experiment.name]] if experiment.name in ABOUT else []
    if experiment.table == "scores":
        shown = [tables.score_tables(results, REASONS)]
    else:
        parts.append(tables.LEGENDS[experiment.table])
        shown = [tables.TABLES[experiment.table](result) for result in results]
    for found in shown:
        for data, text in found.items():
            parts += [f"### {_heading(data)}", text] if len(found) > 1 else [text]
    parts += [result.note for result in results if result.note]
    if experiment.name in REMARKS:
        parts += REMARKS[experiment.name](results[0])
    if experiment.name in _BUDGETS:
        parts += ["Calls of the simulator:", tables.budget_table(results)]
    return parts + [picture for result in results for picture in _pictures(result)]


def _settings(result: ExperimentResult) -> str:
    experiment, machine = result.experiment, result.machine or {}
    seeds = sorted({row.seed for row in result.rows})
    sizes = sorted({row.n for row in result.rows})
    preset = "" if result.preset == "default" else f" --preset {result.preset}"
    per_network = experiment.repeats_per_network
    shared = "" if per_network == 1 else f", {per_network} repeats per network"
    where = "".join(f"{machine[key]}, " for key in ("cpu", "jax_device") if machine.get(key, "cpu") != "cpu")
    return (
        f"`nsmbayes reproduce {experiment.name}{preset} --seed {seeds[0]}`: n = "
        f"{' to '.join(f'{n:,}' for n in dict.fromkeys((sizes[0], sizes[-1])))}, {experiment.m:,} "
        f"simulations, {_counted(len(seeds), 'repeat')}{shared}; {where}{_counted(machine['cores'], 'core')}, Python "
        f"{machine['python']}, JAX {machine['packages']['jax']}."
    )


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'s' * (count != 1)}"


def _ablation(result: ExperimentResult) -> list[str]:
    said = []
    for ending, name in (("", "Summed over noise levels"), (", one level", "With one level")):
        robust, sample = _shared(*(result.of(f"nsm-bayes-conj, {scatter}{ending}") for scatter in ("mcd", "sample")))
        if sample:
            said.append(
                f"{name}, sample moments change the MSE from {mean(robust, 'mse'):.2f} to {mean(sample, 'mse'):.2f} "
                f"and the number of regions that contain the truth from {_covered(robust)} to {_covered(sample)} of "
                f"{len(sample)}."
            )
    prior, printed = result.task.prior, paper.SIR_ABLATION["nsm-bayes-conj, sample"].mse
    assert printed is not None
    error = np.trace(prior.covariance) + ((prior.mean - result.task.theta_true) ** 2).sum()
    return [
        f"The prior has an MSE of {error:.4f}, and the paper prints {printed[0]:.2f} ({printed[1]:.2f}) for sample "
        "moments: its posterior there is the prior ([errata](errata.md#the-experiments)).",
        *([" ".join(["On the seeds with both scatters:", *said])] if said else []),
    ]


def _radio(result: ExperimentResult) -> list[str]:
    low = result.task.theta_true[2] - np.mean([centre[2] for centre, _ in moments(result.of("nle"))])
    return [
        *_medians(result),
        "Mean error of the posterior mean (mean posterior standard deviation):",
        tables.parameter_table(result),
        f"NLE estimates theta_3 too low by {low:.1f} on the log scale, where the prior's standard deviation is "
        f"{result.task.prior.std[2]:g}; the paper, too, finds it strongly underestimated.",
    ]


def _medians(result: ExperimentResult) -> list[str]:
    medians = (
        f"{display_name(label)} {np.median(column(result.of(label), 'mse')):.2f}"
        for label in dict.fromkeys(row.method for row in result.rows)
    )
    return [f"Median MSE, which does not depend on a single repeat: {', '.join(medians)}."]


REMARKS = {"sir": _medians, "sir-heavy": _medians, "sir-ablation": _ablation, "radio": _radio}


_BUDGETS = ("gnk", "sir", "radio", "gnk-npl-mmd", "sir-budget")  # where calls of the simulator are shown


def _pictures(result: ExperimentResult) -> list[str]:
    found = [(name, PICTURES / f"{_stem(result)}-{name}.png") for name in result.experiment.figures]
    preset = " (`--preset paper`)" if result.preset == "paper" else ""
    return [
        f"![{path.stem}](images/results/{path.name})\n\n*{(FIGURES[name].__doc__ or '').splitlines()[0]}*{preset}"
        for name, path in found
        if path.exists()
    ]


def take_pictures(folder: Path) -> None:
    """Copy the pictures of the stored experiments, small enough for a repository."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    for stored in sorted(RESULTS.glob("*.json")):
        for path in sorted((folder / stored.stem / "figures").glob("*.png")):
            picture = Image.open(path).convert("RGB")
            picture.thumbnail((_WIDEST, 2 * _WIDEST), Image.Resampling.LANCZOS)
            picture.quantize(_COLOURS).save(PICTURES / f"{stored.stem}-{path.name}", optimize=True)


def _stem(result: ExperimentResult) -> str:
    return f"{result.experiment.name}-{result.preset}"


def _heading(text: str) -> str:
    return text[0].upper() + text[1:]


def _shared(first: Sequence[Row], second: Sequence[Row]) -> tuple[list[Row], list[Row]]:
    """The rows of seeds that both have."""
    seeds = {row.seed for row in first} & {row.seed for row in second}
    return [row for row in first if row.seed in seeds], [row for row in second if row.seed in seeds]


def _covered(rows: Sequence[Row]) -> int:
    return int(column(rows, "covered").sum())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--figures", type=Path)
    options = parser.parse_args()
    file = DOCS / "results.md"
    if options.check:
        raise SystemExit(file.read_text(encoding="utf-8") != page())
    if options.figures is not None:
        take_pictures(options.figures)
    file.write_text(page(), encoding="utf-8")
