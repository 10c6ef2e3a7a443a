"""Draw the pictures of the documentation: `python docs/make_images.py [gnk] [sir] [radio] [calibration]`.

Without a name, all of them. `gnk=folder` uses the models that `nsmbayes demo` left in a folder; all other models are
trained first, as the tutorials do, in one to three minutes per task.
"""

import io
import sys
import warnings
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

import nsmbayes as nsm
from nsmbayes.plotting import (
    plot_calibration,
    plot_delay_profile,
    plot_influence,
    plot_marginals,
    plot_pairs,
    plot_trajectories,
    plot_weights,
)
from nsmbayes.tasks import radio, sir

IMAGES = Path(__file__).parent / "images"
_COLOURS = 128  # enough for lines and flat areas, and the file is a third as large


def raster(fig: Figure, dpi: int) -> Image.Image:
    """A figure as pixels."""
    buffer = io.BytesIO()
    fig.savefig(buffer, format="png", dpi=dpi)
    return Image.open(buffer).convert("RGB")


def stack(*parts: Image.Image) -> Image.Image:
    """Pictures below one another, centred on white."""
    whole = Image.new("RGB", (max(p.width for p in parts), sum(p.height for p in parts)), "white")
    top = 0
    for part in parts:
        whole.paste(part, ((whole.width - part.width) // 2, top))
        top += part.height
    return whole


def save(image: Image.Image, name: str) -> None:
    """Write a picture to the documentation, small."""
    IMAGES.mkdir(exist_ok=True)
    image.quantize(_COLOURS, dither=Image.Dither.NONE).save(IMAGES / f"{name}.png", optimize=True)


def draw_gnk(folder: str = "") -> None:
    """The pictures of README, of the g-and-k tutorial and of the page on guarantees."""
    task = nsm.tasks.get("gnk")
    if not folder:
        names, simulations = {"parameter_names": task.parameter_names}, task.simulate(100_000, seed=0)
        conjugate, robust = nsm.NSMBayesConj(task.prior, **names), nsm.NSMBayes(task.prior, **names)
        for method in (conjugate, robust):
            method.append_simulations(*simulations).train(seed=0)
    else:
        conjugate, robust = (nsm.load(Path(folder) / name) for name in ("nsm-bayes-conj", "nsm-bayes"))
    obs = task.observe(100, seed=1)
    posterior = conjugate.build_posterior(obs.x, seed=0)
    clean = conjugate.build_posterior(obs.clean, seed=0)
    weights = plot_weights(posterior, is_outlier=obs.is_outlier)
    save(raster(weights, 110), "gnk-weights")
    comparison = {"posterior (observed data)": posterior, "posterior had the data been clean": clean}
    save(raster(plot_marginals(comparison, truth=task.theta_true), 110), "gnk-marginals")
    save(raster(plot_calibration(posterior.calibration), 110), "gnk-calibration")

    nle = nsm.NLE(task.prior).adopt(robust)
    with warnings.catch_warnings():  # misled by outliers, NLE may have several modes
        warnings.simplefilter("ignore", UserWarning)
        posteriors = [method.build_posterior(obs.x, seed=0) for method in (robust, nle)]
    marginals = plot_marginals({p.label: p for p in (*posteriors, posterior)}, truth=task.theta_true)
    save(raster(plot_influence({p.label: p for p in (posterior, *posteriors)}), 110), "influence")
    weights.set_size_inches(marginals.get_figwidth(), 3.0)
    save(stack(raster(weights, 140), raster(marginals, 140)), "demo")


def draw_sir() -> None:
    """The pictures of the SIR tutorial."""
    observed = sir.observed_reports(100, seed=1)
    save(raster(plot_trajectories(observed.reported, is_outlier=observed.is_outlier), 110), "sir-trajectories")
    draw_pairs("sir")


def draw_radio() -> None:
    """The pictures of the radio tutorial."""
    observed = radio.observed_series(100, seed=1)
    profile = plot_delay_profile(radio.TIMES, np.abs(observed.series) ** 2, is_outlier=observed.is_outlier)
    save(raster(profile, 110), "radio-profile")
    draw_pairs("radio")


def draw_pairs(name: str) -> None:
    """NLE, NSM-Bayes and NSM-Bayes-conj in one figure, given contaminated data."""
    task = nsm.tasks.get(name)
    options = {"grid_steps": task.grid_steps, "parameter_names": task.parameter_names}
    simulations = task.simulate(50_000, seed=0)
    robust = nsm.NSMBayes(task.prior, **options).append_simulations(*simulations).train(seed=0)
    conjugate = nsm.NSMBayesConj(task.prior, **options).append_simulations(*simulations).train(seed=0)
    obs = task.observe(100, seed=1)
    methods = (nsm.NLE(task.prior, **options).adopt(robust), robust, conjugate)
    posteriors = [method.build_posterior(obs.x, seed=0) for method in methods]
    save(raster(plot_pairs({p.label: p for p in posteriors}, truth=task.theta_true), 90), f"{name}-pairs")


def far_outliers(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """A tenth of the rows, moved by twenty times the quartile range of the data set."""
    x[rng.permutation(len(x))[: len(x) // 10]] += 20 * np.ptp(np.quantile(x, (0.25, 0.75), axis=0), axis=0)
    return x


def draw_calibration() -> None:
    """The picture of the page on calibration: a robust method above, NLE below, on clean and contaminated data."""
    task = nsm.tasks.get("gaussian")
    robust = nsm.NSMBayesAmortised(task.prior, parameter_names=task.parameter_names)
    robust.append_simulations(*task.simulate(50_000, seed=0)).train(seed=0)
    nle = nsm.NLE(task.prior, parameter_names=task.parameter_names).adopt(robust)
    options = {"datasets": 80, "n": 100, "simulator": task, "contamination": far_outliers}
    found = [nsm.diagnostics.calibration(method, beta=1.0, **options) for method in (robust, nle)]
    print(*(each.table() for each in found), sep="\n")
    save(stack(*(raster(each.plot(), 90) for each in found)), "calibration-map")


DRAW = {"gnk": draw_gnk, "sir": draw_sir, "radio": draw_radio, "calibration": draw_calibration}

if __name__ == "__main__":
    for wanted in sys.argv[1:] or DRAW:
        task_name, _, models = wanted.partition("=")
        DRAW[task_name](*filter(None, [models]))
