"""Reading a campaign: its rows, its progress, and its failures."""

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from nsmbayes._internal import checks
from nsmbayes.calls import RowStatus
from nsmbayes.errors import InputError
from nsmbayes.priors import prior_from_json
from nsmbayes.simulators.campaigns.store import Rows, Store

_TELLING = 0.5  # standard deviations between the means of failed and valid parameters above which they are reported


@dataclass(frozen=True)
class Progress:
    """The progress of a campaign."""

    rows: int
    done: int
    failed: dict[str, int]
    """Number of rows that failed, by `RowStatus`."""
    running: bool
    """Whether a process is simulating now."""
    rate: float | None
    """Rows per second of the last run."""

    @property
    def seconds_left(self) -> float | None:
        """Seconds that the remaining rows take at the current rate; None if the rate is not known."""
        return (self.rows - self.done) / self.rate if self.rate else None

    def describe(self) -> str:
        """The progress as a text of a few lines."""
        state = "running" if self.running else "complete" if self.done == self.rows else "stopped"
        lines = [f"{state}: {self.done:,} of {self.rows:,} rows ({self.done / self.rows:.1%})"]
        if self.rate is not None:
            left = f", {_duration(self.seconds_left or 0)} left" if self.done < self.rows else ""
            lines.append(f"{self.rate:,.3g} rows per second{left}")
        failed = sum(self.failed.values())
        kinds = ", ".join(f"{count:,} {name.lower().replace('_', ' ')}" for name, count in self.failed.items())
        lines.append(f"{failed:,} failed ({failed / max(self.done, 1):.2%})" + (f": {kinds}" if failed else ""))
        return "\n".join(lines)


class Failures(NamedTuple):
    """The rows that failed, their parameters and the reasons."""

    rows: Int[np.ndarray, " k"]
    theta: Float[np.ndarray, "k d_theta"]
    reasons: list[str]
    parameter_names: tuple[str, ...]
    distance: Float[np.ndarray, " d_theta"]
    """Difference between the means of each parameter in failed and in valid rows, in standard deviations."""

    def describe(self) -> str:
        """The most common reasons, and the parameters that differ between failed and valid rows."""
        if not len(self.rows):
            return "no row failed"
        lines = [f"{count:,} times: {reason}" for reason, count in Counter(self.reasons).most_common(5)]
        for j in np.argsort(-np.abs(self.distance)):
            if abs(self.distance[j]) > _TELLING:
                side = "large" if self.distance[j] > 0 else "small"
                amount = f"{abs(self.distance[j]):.1f} standard deviations from that of valid rows"
                lines.append(f"failed rows have a {side} {self.parameter_names[j]}: their mean lies {amount}")
        return "\n".join(lines)


class Campaign:
    """Stored simulations.

    Args:
        path: the folder that `nsmbayes.simulate` writes, e.g. "campaign.zarr". The campaign may still be running.

    Example:
        >>> import tempfile
        >>> import nsmbayes as nsm
        >>> prior = nsm.GaussianPrior(mean=[0.0], covariance=[1.0])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     _ = nsm.simulate(lambda rng, theta: theta + rng.normal(size=1), prior, 50, out=f"{folder}/c.zarr")
        ...     print(nsm.Campaign(f"{folder}/c.zarr").progress().describe().splitlines()[0])
        complete: 50 of 50 rows (100.0%)
    """

    def __init__(self, path: str | Path):
        self._store = Store(path)
        self.path = self._store.path

    def __len__(self) -> int:
        return self._store.m

    @property
    def d_theta(self) -> int:
        """Number of parameters."""
        return self._store.d_theta

    @property
    def d_x(self) -> int:
        """Number of columns of an observation."""
        return self._store.d_x

    @property
    def batch(self) -> int:
        """Number of rows that are written together, and are best read together."""
        return self._store.batch

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """One name per parameter."""
        return tuple(self._store.attributes["parameter_names"])

    @property
    def prior(self) -> Any:
        """The prior; an `InputError` if it is of a kind that cannot be stored."""
        document = self._store.attributes["prior"]["json"]
        if document is None:
            raise InputError(f"`{self.path}` does not hold its prior: it is of a kind that has no JSON form. Pass it.")
        return prior_from_json(document)[0]

    @property
    def facts(self) -> dict[str, Any]:
        """The stored attributes, such as fingerprints and seeds."""
        return self._store.attributes

    def progress(self) -> Progress:
        """The progress of the campaign. Any process can call this while another one simulates."""
        status, run = self._store.status(), self._store.run()
        done, running = int(np.count_nonzero(status)), self._store.is_locked()
        until = run.get("ended") or (time.time() if running else None)
        rate = None
        if until is not None and done > run["rows_before"]:
            rate = (done - run["rows_before"]) / max(until - run["started"], 1e-3)
        failed = {kind.name: int(np.count_nonzero(status == kind)) for kind in RowStatus if kind > RowStatus.VALID}
        return Progress(len(status), done, {name: k for name, k in failed.items() if k}, running, rate)

    def blocks(self, size: int = 100_000) -> Iterator[Rows]:
        """All finished rows, in blocks of about `size`; only one block is in memory at a time."""
        step = max(1, size // self._store.batch) * self._store.batch
        for start in range(0, len(self), step):
            rows = self._store.rows(start, min(start + step, len(self)))
            done = rows.status != RowStatus.PENDING
            yield rows if done.all() else Rows(*(array[done] for array in rows))

    def rows(self, start: int, stop: int) -> Rows:
        """Rows `start` to `stop`."""
        return self._store.rows(start, stop)

    def arrays(
        self, *, drop_failures: bool = False
    ) -> tuple[Float[np.ndarray, "m d_theta"], Float[np.ndarray, "m d_x"]]:
        """theta and x of all valid rows, in memory; an error if rows failed, unless `drop_failures` is True."""
        require_valid(self, drop_failures=drop_failures)
        valid = [
            (rows.theta[rows.status == RowStatus.VALID], rows.x[rows.status == RowStatus.VALID])
            for rows in self.blocks()
        ]
        theta, x = zip(*valid, strict=True)
        return np.concatenate(theta), np.concatenate(x)

    def failures(self) -> Failures:
        """The rows that failed: their parameters, the reasons, and how they differ from valid rows."""
        status = self._store.status()
        rows = np.flatnonzero(status > RowStatus.VALID)
        sums = np.zeros((3, self.d_theta))  # of valid theta: number, sum, sum of squares
        theta, reasons = [np.zeros((0, self.d_theta))], []
        for start, stop in self._store.batches():
            block, bad = self._store.rows(start, stop), status[start:stop] > RowStatus.VALID
            valid = block.theta[status[start:stop] == RowStatus.VALID]
            sums += [np.full(self.d_theta, len(valid)), valid.sum(axis=0), (valid**2).sum(axis=0)]
            if bad.any():
                theta.append(block.theta[bad])
                reasons += [text for text, failed in zip(self._store.reasons(start, stop), bad, strict=True) if failed]
        count, mean = np.maximum(sums[0], 1), sums[1] / np.maximum(sums[0], 1)
        spread = np.sqrt(np.maximum(sums[2] / count - mean**2, 0))
        failed = np.concatenate(theta)
        with np.errstate(divide="ignore", invalid="ignore"):
            distance = (failed.mean(axis=0) - mean) / spread if len(failed) else np.zeros(self.d_theta)
        return Failures(rows, failed, reasons, self.parameter_names, np.nan_to_num(distance))


def require_valid(campaign: Campaign, *, drop_failures: bool) -> int:
    """The number of rows that failed; an error if there are any, unless `drop_failures` is True."""
    drop_failures = checks.flag(drop_failures, "drop_failures")
    progress = campaign.progress()
    failed = sum(progress.failed.values())
    if progress.done == failed:
        raise InputError(f"`{campaign.path}` has no valid rows: nothing can be learnt from it.")
    if failed and not drop_failures:
        raise InputError(
            f"`{campaign.path}` has {failed:,} failed rows of {progress.done:,} ({failed / progress.done:.2%}). To "
            "drop them biases the likelihood: what is learnt is x given theta and given that the simulator works. "
            f"Look at Campaign({str(campaign.path)!r}).failures(); pass drop_failures=True, or "
            "--drop-failures on the command line, to drop them; every result will say so."
        )
    return failed


def _duration(seconds: float) -> str:
    minutes, hours = seconds / 60, seconds / 3600
    return f"{seconds:.0f} s" if minutes < 2 else f"{minutes:.0f} min" if hours < 2 else f"{hours:.1f} h"
