"""Merging several campaigns into one."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from nsmbayes.calls import Outcome, RowStatus
from nsmbayes.errors import InputError
from nsmbayes.simulators.campaigns.campaign import Campaign
from nsmbayes.simulators.campaigns.store import Store, create, run_facts


def merge_campaigns(paths: Sequence[str | Path], out: str | Path) -> Campaign:
    """Copy the finished rows of several campaigns into a new campaign `out`.

    The campaigns must have the same prior and the same simulator, by their fingerprints, and different seeds. The
    result cannot be extended: extend its parts, and merge again.

    Example:
        >>> import tempfile
        >>> import nsmbayes as nsm
        >>> prior = nsm.GaussianPrior(mean=[0.0], covariance=[1.0])
        >>> def simulator(rng, theta):
        ...     return theta + rng.normal(size=1)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     for seed in (0, 1):
        ...         _ = nsm.simulate(simulator, prior, 50, seed=seed, out=f"{folder}/{seed}.zarr")
        ...     print(len(nsm.merge_campaigns([f"{folder}/0.zarr", f"{folder}/1.zarr"], f"{folder}/both.zarr")))
        100
    """
    if isinstance(paths, str | Path) or not len(paths):
        raise InputError(f"`paths` must be a list of campaigns; got {paths!r}.")
    if Path(out).exists():
        raise InputError(f"`out` {out} exists already. Choose another name.")
    campaigns = [Campaign(path) for path in paths]
    first = campaigns[0].facts
    for campaign in campaigns[1:]:
        for name in ("prior", "simulator"):
            if campaign.facts[name] != first[name]:
                raise InputError(f"`paths`: {campaign.path} has another {name} than {campaigns[0].path}.")
    seeds = [part["seed"] for campaign in campaigns for part in campaign.facts["parts"]]
    if len(set(seeds)) < len(seeds):
        raise InputError(f"`paths`: campaigns with the same seed have the same rows; got the seeds {seeds}.")
    rows = sum(campaign.progress().done for campaign in campaigns)
    widths = {(campaign.d_theta, campaign.d_x) for campaign in campaigns}
    if len(widths) > 1 or rows == 0:
        raise InputError(f"`paths`: there must be rows, of the same widths; got {rows} rows, widths {sorted(widths)}.")
    scratch = Path(f"{out}.merging")
    if scratch.exists():
        raise InputError(f"{scratch} is left from a merge that did not end. Delete it first.")
    store = create(
        scratch,
        m=rows,
        d_theta=campaigns[0].d_theta,
        d_x=campaigns[0].d_x,
        batch=min(rows, 10_000),
        parameter_names=campaigns[0].parameter_names,
        parts=[{"seed": seed} for seed in seeds],
        simulator=first["simulator"],
        prior=first["prior"],
    )
    store.set_run(**run_facts(rows))
    _copy(campaigns, store)
    scratch.rename(out)
    return Campaign(out)


def _copy(campaigns: list[Campaign], store: Store) -> None:
    at = 0
    for campaign in campaigns:
        source = Store(campaign.path)
        for start in range(0, source.m, store.batch):
            stop = min(start + store.batch, source.m)
            rows, reasons = source.rows(start, stop), source.reasons(start, stop)
            done = rows.status != RowStatus.PENDING
            theta, x, status = (array[done] for array in rows)
            kept = [text for text, keep in zip(reasons, done, strict=True) if keep]
            told = {at + i: text for i, text in enumerate(kept) if text}
            if len(theta):
                store.commit(theta, Outcome(at, x, np.asarray(status), told))
            at += len(theta)
