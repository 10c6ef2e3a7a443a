"""Warnings of a posterior, in plain sentences: see docs/warnings.md."""

import textwrap
from typing import Any

import numpy as np

from nsmbayes.errors import InputError

_LOW, _MANY = 0.1, 0.2  # low weights are below _LOW; a larger fraction of them than _MANY is unusual
_HALF = 0.5  # an observation with a smaller weight counts less than half
_SAME = 0.05  # a posterior with a smaller KL to the prior, in nats per parameter, is close to the prior
_FAR = 3.0  # a posterior mean this many prior standard deviations from the prior mean is unusual


def wrapped(warning: str) -> str:
    """Wrap a warning into lines for a terminal."""
    return textwrap.fill(f"WARNING: {warning}", 110)


def warnings_about(posterior: Any) -> tuple[str, ...]:
    """Warnings about a posterior of any kind; empty if nothing is unusual."""
    found, weights = [], posterior.weights
    if posterior.provenance.interrupted:
        found.append(
            "The training of the network was interrupted: this posterior is that of a half-trained network. Train it "
            "fully, and build the posterior again."
        )
    if np.median(weights) < _HALF:
        found.append(
            f"Most observations have little influence: {(weights < _HALF).sum():,} of {len(weights):,} have a weight "
            f"below {_HALF:g}. The posterior is that of the few others. Look at posterior.outliers(): either most data "
            "are wrong, or the model, or values are tied so that their scatter is too small."
        )
    elif (weights < _LOW).mean() > _MANY:
        found.append(
            f"{(weights < _LOW).sum():,} of {len(weights):,} observations have a weight below {_LOW:g}: more than a "
            "fifth is a lot for outliers. Look at posterior.outliers() and posterior.verdict(): the simulator may be "
            "wrong, or the scatter too small."
        )
    narrow = narrow_columns(posterior)
    if narrow:
        found.append(
            f"The scatter of column {', '.join(map(str, narrow))} is no wider than one step of its grid: distances, "
            "and with them weights, depend on rounding. Give `grid_steps`, or finer values."
        )
    moved = (posterior.mean - posterior.prior.mean) / posterior.prior.std
    if gaussian_kl(posterior) < _SAME * posterior.dim:
        found.append(
            "The posterior is almost the prior: the observations carry little information. They may be too few, "
            "too alike (tied, or rounded), distrusted, or say nothing about these parameters."
        )
    elif np.abs(moved).max() > _FAR:
        j = int(np.abs(moved).argmax())
        found.append(
            f"The posterior mean of {posterior.parameter_names[j]} is {abs(moved[j]):.1f} prior standard deviations "
            "from the prior mean, where there are few simulations or none: the surrogate extrapolates. Check the units "
            "of the data and the prior, and simulate there."
        )
    check = posterior.surrogate_check
    if check is not None and check.notable:
        found.append(
            f"With {check.n:,} observations the surrogate's error may be {np.sqrt(check.ratio):.2g} times the width "
            f"that the data alone would give: the posterior {'is wider for it' if check.applied else 'ignores it'}. "
            f"From {check.worth:,.0f} observations on the network, not the data, sets the limit: simulate more near "
            "here (method.refine), or take another method."
        )
    return tuple(found)


def narrow_columns(posterior: Any) -> list[int]:
    """Columns whose values are mostly tied, with grid steps at least as large as the scatter of the bulk."""
    x = posterior.x
    try:
        scale = np.sqrt(np.diag(posterior.location_scatter[1]))
    except InputError:  # too many ties for a scatter
        return []
    found = []
    for j, column in enumerate(x.T):
        values = np.unique(column)
        if 1 < len(values) <= len(column) / 2 and scale[j] <= np.median(np.diff(values)):
            found.append(j)
    return found


def gaussian_kl(posterior: Any) -> float:
    """KL(posterior || prior) for Gaussian distributions with the same means and covariances."""
    prior, d = posterior.prior, posterior.dim
    root = np.linalg.cholesky(np.diag(1 / prior.std) @ prior.covariance @ np.diag(1 / prior.std))
    spread = np.linalg.solve(root, posterior.covariance / np.outer(prior.std, prior.std))
    spread = np.linalg.solve(root, spread.T)
    step = np.linalg.solve(root, (posterior.mean - prior.mean) / prior.std)
    log_det = np.linalg.slogdet(spread)[1]
    return float(0.5 * (np.trace(spread) - d + step @ step - log_det))
