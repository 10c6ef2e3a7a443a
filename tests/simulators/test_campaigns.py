"""What is stored is there as a whole, is never changed, and says what it is."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import numpyro.distributions as dist
import pytest
import xarray
import zarr
from support.functions import bad, noisy, noisy_batch
from support.simulators import PRIOR

import nsmbayes as nsm
from nsmbayes.calls import RowStatus
from nsmbayes.simulators import draw_theta
from nsmbayes.simulators.campaigns import prior_from_json, prior_to_json, read_prior
from nsmbayes.simulators.campaigns.fingerprint import prior_fingerprint, simulator_fingerprint
from nsmbayes.simulators.campaigns.store import Store

M = 230


def run(out, m=M, simulator=noisy, **options):
    return nsm.simulate(simulator, options.pop("prior", PRIOR), m, out=out, progress=False, **options)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A campaign that nothing disturbed."""
    return run(tmp_path_factory.mktemp("campaign") / "whole.zarr", batch=M)


def same(one, other):
    return all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one, other, strict=True))


def test_rows_follow_the_prior_and_the_simulator(whole):
    theta, x = whole.arrays()
    assert np.array_equal(theta, draw_theta(PRIOR, 0, 0, M))
    assert x.shape == (M, 2)
    # 4.5 standard errors: seen by chance with probability 1e-5
    assert np.abs((x - theta).mean(axis=0)).max() < 4.5 / np.sqrt(M)


@pytest.mark.parametrize("options", [{"batch": 1}, {"batch": 23}, {"batch": 100, "executor": 2}])
def test_neither_batch_nor_executor_changes_a_row(whole, options, tmp_path):
    assert same(run(tmp_path / "c.zarr", **options).arrays(), whole.arrays())


def test_a_campaign_can_be_extended(whole, tmp_path):
    for m in (10, 105, 50, M):  # within a batch, to more batches, to less than there is
        campaign = run(tmp_path / "c.zarr", m, batch=30)
        assert len(campaign) == max(m, 105 if m == 50 else 0)
    assert same(campaign.arrays(), whole.arrays())


def test_plain_zarr_and_xarray_open_it(whole):
    """In a process that cannot import this package, with warnings as errors."""
    code = f"""
import sys
sys.modules["nsmbayes"] = None
import xarray, zarr
group = zarr.open_group({str(whole.path)!r}, mode="r")
data = xarray.open_zarr({str(whole.path)!r}, consolidated=False)
print(sorted(name for name, _ in group.members()), group["x"].shape, data.theta.dims, int(data.status.sum()))
print(float(data.x.mean()))
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert done.stderr == ""
    shapes, mean = done.stdout.splitlines()
    assert shapes == f"['reason', 'status', 'theta', 'x'] ({M}, 2) ('row', 'parameter') {M}"
    assert float(mean) == pytest.approx(whole.arrays()[1].mean(), rel=1e-12)
    assert zarr.open_group(whole.path, mode="r")["x"].metadata.zarr_format == 3
    assert xarray.open_zarr(whole.path, consolidated=False).attrs["nsmbayes"]["parts"] == [{"seed": 0}]


def test_a_damaged_chunk_is_found_and_made_anew(whole, tmp_path):
    path = run(tmp_path / "c.zarr", batch=50).path
    for damage in ("flip", "lose"):
        chunk = path / "x" / "c" / "2" / "0"
        if damage == "flip":
            content = bytearray(chunk.read_bytes())
            content[11] ^= 1
            chunk.write_bytes(content)
        else:
            chunk.unlink()
        with pytest.raises(nsm.InputError, match=r"is damaged in rows 100 to 149.*Delete .*status/c/2 and simulate"):
            nsm.Campaign(path).arrays()
        (path / "status" / "c" / "2").unlink()
        assert nsm.Campaign(path).progress().done == M - 50
        assert same(run(path).arrays(), whole.arrays())


@pytest.mark.parametrize("written", ["", "theta", "x", "reason"])
def test_a_batch_without_its_status_is_not_there(written, whole, tmp_path):
    """Whatever was written of it: the status is the last file of a batch."""
    path = run(tmp_path / "c.zarr", batch=50).path
    names = ["theta", "x", "reason", "status"]
    for name in names[names.index(written) + 1 if written else 0 :]:
        shutil.rmtree(path / name / "c" / "1", ignore_errors=True)
        (path / name / "c" / "1").unlink(missing_ok=True) if name == "status" else None
    (path / "x" / "c" / "0" / "0.abc.partial").write_bytes(b"half")
    assert nsm.Campaign(path).progress().done == M - 50
    assert len(nsm.Campaign(path).arrays()[0]) == M - 50
    assert same(run(path).arrays(), whole.arrays())
    assert not list(path.rglob("*.partial"))


KILLED = """
import sys
sys.path.insert(0, {tests!r})
import nsmbayes as nsm
from support.functions import slow
prior = nsm.GaussianPrior(mean=[0.0, 1.0], covariance=[1.0, 0.25])
nsm.simulate(slow, prior, {m}, out={out!r}, batch=10, executor=2, progress=False)
"""


@pytest.mark.slow
def test_a_killed_process_loses_no_committed_batch(whole, tmp_path):
    """A small version of `python -m bench.kills`."""
    out, tests = tmp_path / "c.zarr", os.path.dirname(os.path.dirname(__file__))
    code = KILLED.format(tests=tests, m=M, out=str(out))
    killed = 0
    while not out.exists() or nsm.Campaign(out).progress().done < M:
        process = subprocess.Popen([sys.executable, "-c", code])
        before = nsm.Campaign(out).progress().done if out.exists() else 0
        while process.poll() is None and not killed:
            time.sleep(0.02)
            if out.exists() and (done := nsm.Campaign(out).progress()).done >= before + 20:
                assert done.running
                process.send_signal(signal.SIGKILL)
                process.wait()
                killed += 1
                stored = nsm.Campaign(out)
                assert not stored.progress().running
                assert same(stored.arrays(), [a[_done(stored)] for a in whole.arrays()])
        process.wait()
    assert killed == 1
    assert same(nsm.Campaign(out).arrays(), whole.arrays())


def _done(campaign):
    return np.flatnonzero(Store(campaign.path).status() != RowStatus.PENDING)


def test_two_processes_do_not_write_at_once(tmp_path):
    path = run(tmp_path / "c.zarr", 20).path
    with (
        Store(path, writable=True).locked(),
        pytest.raises(nsm.InputError, match=f"Process {os.getpid()} on .* is simulating into"),
    ):
        run(path, 30)
    assert len(run(path, 30)) == 30


def test_another_prior_simulator_or_seed_is_refused(tmp_path):
    path = run(tmp_path / "c.zarr", 20).path
    for options, which in (
        ({"prior": nsm.GaussianPrior([0.0, 1.0], [1.0, 0.3])}, "prior"),
        ({"simulator": bad}, "simulator"),
        ({"seed": 1}, "seed"),
    ):
        with pytest.raises(nsm.InputError, match=f"a campaign with another `{which}`"):
            run(path, 30, **options)
    with pytest.raises(nsm.InputError, match="is not a campaign"):
        nsm.Campaign(tmp_path)
    with pytest.raises(nsm.InputError, match="is not a campaign"):
        run(tmp_path, 30)


def test_fingerprints_follow_what_matters():
    def scaled(scale):
        return nsm.NumpySimulator(lambda rng, theta: scale * theta)

    prints = [
        simulator_fingerprint(simulator)
        for simulator in (
            scaled(1.0),
            scaled(2.0),
            scaled(np.ones(2)),
            nsm.NumpySimulator(noisy),
            nsm.BatchSimulator(noisy_batch, size=10),
            nsm.BatchSimulator(noisy_batch, size=20),
            nsm.CommandSimulator(["echo", "{theta[0]}"]),
            nsm.CommandSimulator(["cat", "{theta[0]}"]),
            nsm.tasks.get("gnk").as_simulator(),
            nsm.tasks.get("sir").as_simulator(),
        )
    ]
    assert len(set(prints)) == len(prints)
    assert simulator_fingerprint(scaled(np.ones(2))) == prints[2]
    # That it is the same in another process is what continuing a killed campaign needs, above.


def test_campaigns_merge_if_they_agree(whole, tmp_path):
    other = run(tmp_path / "1.zarr", 40, seed=1)
    both = nsm.merge_campaigns([whole.path, other.path], tmp_path / "both.zarr")
    parts = zip(whole.arrays(), other.arrays(), strict=True)
    assert same(both.arrays(), [np.concatenate(pair) for pair in parts])
    assert both.progress().describe().startswith(f"complete: {M + 40} of {M + 40} rows")
    with pytest.raises(nsm.InputError, match="another `seed`"):
        run(both.path, 500)
    for second, complaint in (
        (run(tmp_path / "same.zarr", 10).path, "campaigns with the same seed have the same rows"),
        (run(tmp_path / "simulator.zarr", 10, noisy_one, seed=2).path, "has another simulator"),
        (run(tmp_path / "prior.zarr", 10, prior=nsm.GaussianPrior([0, 0], [1, 1]), seed=3).path, "has another prior"),
    ):
        with pytest.raises(nsm.InputError, match=complaint):
            nsm.merge_campaigns([whole.path, second], tmp_path / "no.zarr")
    with pytest.raises(nsm.InputError, match="exists already"):
        nsm.merge_campaigns([whole.path], both.path)


def noisy_one(rng, theta):
    return theta * rng.standard_normal(2)


def failing(rng, theta):
    if theta[0] > 1.2:
        raise ArithmeticError("too hot")
    return np.array([theta[0], np.log(theta[1] + 0.3 * rng.standard_normal())])


def test_failures_are_kept_with_theta_and_reason(tmp_path):
    with np.errstate(invalid="ignore"):
        campaign = run(tmp_path / "c.zarr", 300, failing, max_failures=0.3, batch=40)
    failures, theta = campaign.failures(), draw_theta(PRIOR, 0, 0, 300)
    hot = np.flatnonzero(theta[:, 0] > 1.2)
    assert np.isin(hot, failures.rows).all()
    assert np.array_equal(failures.theta, theta[failures.rows])
    told = dict(zip(failures.rows.tolist(), failures.reasons, strict=True))
    assert {told[row] for row in hot} == {"ArithmeticError: too hot"}
    assert all("nan]" in reason for row, reason in told.items() if row not in hot)
    text = failures.describe()
    assert f"{len(hot)} times: ArithmeticError: too hot" in text
    assert "failed rows have a large theta_1" in text
    progress = campaign.progress()
    assert progress.failed == {"RAISED": len(hot), "NOT_FINITE": len(told) - len(hot)}
    assert f"{len(told)} failed ({len(told) / 300:.2%}): {len(hot)} raised" in progress.describe()
    with pytest.raises(nsm.InputError, match=f"has {len(told)} failed rows of 300.*biases the likelihood"):
        campaign.arrays()
    assert len(campaign.arrays(drop_failures=True)[0]) == 300 - len(told)


def test_too_many_failures_end_a_campaign_that_can_go_on(tmp_path):
    path = tmp_path / "c.zarr"
    with np.errstate(invalid="ignore"):
        with pytest.raises(nsm.SimulationError, match=r"allows 0\.05 of 300(.|\n)*times: ArithmeticError: too hot"):
            run(path, 300, failing, batch=10)
        stopped = nsm.Campaign(path).progress()
        assert 0 < stopped.done < 300
        assert sum(stopped.failed.values()) > 0.05 * 300
        campaign = run(path, 300, failing, max_failures=0.5)
        other = run(tmp_path / "d.zarr", 300, failing, max_failures=0.5)
    assert same(campaign.arrays(drop_failures=True), other.arrays(drop_failures=True))


def test_a_simulator_that_always_fails_is_not_called_for_long(tmp_path):
    def never(rng, theta):
        raise ValueError("no")

    with pytest.raises(nsm.SimulationError, match="100 of 100 simulations failed, all of them"):
        run(tmp_path / "c.zarr", 5000, never, max_failures=1.0)
    assert not (tmp_path / "c.zarr").exists()


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"m": 0}, "`m` must be at least 1"),
        ({"m": 2**33}, "`m` must be at most"),
        ({"seed": -1}, "`seed`"),
        ({"batch": 0}, "`batch`"),
        ({"max_failures": 2}, "`max_failures`"),
        ({"timeout": 0}, "`timeout`"),
        ({"parameter_names": ("a",)}, "`parameter_names` must be 2 strings"),
        ({"simulator": lambda theta: theta}, "`rng` and `theta`"),
        ({"simulator": 3}, "`simulator` must be"),
        ({"prior": "normal"}, "`prior` must be"),
    ],
)
def test_arguments_are_checked(options, complaint, tmp_path):
    with pytest.raises(nsm.InputError, match=complaint):
        run(tmp_path / "c.zarr", **{"m": 10} | options)


def test_a_function_may_name_its_arguments_in_either_order(whole, tmp_path):
    assert same(run(tmp_path / "c.zarr", simulator=lambda theta, rng: noisy(rng, theta)).arrays(), whole.arrays())


@pytest.mark.parametrize(
    "prior",
    [
        PRIOR,
        dist.Uniform(np.array([0.0, 1.0]), np.array([1.0, 3.0])).to_event(1),
        dist.LogNormal(np.zeros(2), 0.5).to_event(1),
    ],
    ids=["gaussian", "uniform", "lognormal"],
)
def test_priors_travel_as_json(prior, tmp_path):
    document = json.loads(json.dumps(prior_to_json(prior) | {"names": ["a", "b"]}))
    (tmp_path / "prior.json").write_text(json.dumps(document))
    read, names = read_prior(tmp_path / "prior.json")
    assert names == ("a", "b")
    assert np.allclose(draw_theta(read, 0, 0, 5), draw_theta(prior, 0, 0, 5), rtol=1e-6)
    assert prior_fingerprint(read) == prior_fingerprint(prior)


def test_a_prior_without_json_must_be_passed_again(tmp_path):
    prior = dist.MultivariateStudentT(3.0, np.zeros(2), np.eye(2))
    campaign = run(tmp_path / "c.zarr", 10, prior=prior)
    with pytest.raises(nsm.InputError, match="does not hold its prior"):
        _ = campaign.prior


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ([], "a JSON object"),
        ({}, "`distribution` must be one of"),
        ({"distribution": "Gaussian", "mean": [0]}, "Gaussian has 'mean', 'covariance'"),
        ({"distribution": "Uniform", "low": [0], "high": ["x"]}, "`high`"),
        ({"distribution": "Gaussian", "mean": [0], "covariance": [1], "names": ["a", "b"]}, "a list of 1 strings"),
    ],
)
def test_a_prior_in_json_is_checked(document, complaint):
    with pytest.raises(nsm.InputError, match=complaint):
        prior_from_json(document)
