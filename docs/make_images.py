"""Draw the pictures of the documentation again: `python docs/make_images.py [model-folder]`.

`model-folder` is what `nsmbayes demo` leaves behind; without it the models are trained first, in about a minute.
"""

import io
import sys
import warnings
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image

import nsmbayes as nsm
from nsmbayes.report import plot_calibration, plot_influence, plot_marginals, plot_weights

IMAGES = Path(__file__).parent / "images"
_COLOURS = 128  # a picture of lines and flat areas needs no more, and the file is a third as large


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


def main(folder: str | None = None) -> None:
    """Draw everything."""
    task = nsm.tasks.get("gnk")
    if folder is None:
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


if __name__ == "__main__":
    main(*sys.argv[1:])
