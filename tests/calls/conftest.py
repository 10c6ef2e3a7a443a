import multiprocessing
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest
from support.simulators import program

__all__ = ["program"]


@pytest.fixture(scope="session")
def cluster():
    """A real Dask cluster with two processes."""
    import distributed

    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 50}
    with distributed.LocalCluster(**options) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def client(cluster):
    import distributed

    with distributed.Client(cluster) as client:
        yield client


@pytest.fixture(scope="session")
def executors(client):
    """One executor of each kind, by name."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, context) as processes, ThreadPoolExecutor(2) as threads:
        kinds = {"here": None, "pool": 2, "futures": processes, "threads": threads, "dask": client}
        yield kinds | {"address": client.scheduler.address}
