"""Kill a campaign and its workers at random moments, and compare the result with an undisturbed run, bit by bit.

Run it by hand: `python -m bench.kills --kills 50 --store attacks/results/campaigns.json`. A small version is a test.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from nsmbayes import Campaign, GaussianPrior, simulate
from nsmbayes.experiments import machine

PRIOR = GaussianPrior([0.0, 1.0], [1.0, 0.25])


def slow(rng: np.random.Generator, theta: np.ndarray) -> np.ndarray:
    time.sleep(0.002)
    return theta + rng.standard_normal(2)


def campaign(out: str, m: int, executor: str) -> None:
    """Run the campaign in this process, until it is complete or killed."""
    options = {"out": out, "batch": 20, "progress": False}
    if executor != "dask":
        simulate(slow, PRIOR, m, executor=None if executor == "none" else int(executor), **options)
        return
    import distributed

    with (
        distributed.LocalCluster(n_workers=6, threads_per_worker=1, dashboard_address=":0", silence_logs=50) as cluster,
        distributed.Client(cluster) as client,
    ):
        simulate(slow, PRIOR, m, executor=client, **options)


def start(out: Path, m: int, executor: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "bench.kills", "--out", str(out), "--rows", str(m), "--executor", executor]
    return subprocess.Popen(command, start_new_session=True)


def committed(out: Path) -> dict[int, bytes]:
    """The content of the files of every committed batch."""
    found = {}
    for status in (out / "status" / "c").glob("*") if out.exists() else []:
        if status.name.isdigit():
            batch = int(status.name)
            files = [out / "theta" / "c" / status.name / "0", out / "x" / "c" / status.name / "0", status]
            found[batch] = b"".join(file.read_bytes() for file in files)
    return found


def kill_main(folder: Path, m: int, kills: int, executor: str) -> dict[str, int]:
    """Kill the main process `kills` times at random moments, then let it finish."""
    out, before, done, lost = folder / f"main-{executor}.zarr", {}, 0, 0
    while done < kills:
        process = start(out, m, executor)
        grown = len(before)
        while process.poll() is None and len(committed(out)) <= grown:  # it has begun to write
            time.sleep(0.01)
        time.sleep(random.uniform(0.0, 0.3))
        if process.poll() is None:
            process.send_signal(signal.SIGKILL)
            done += 1
        process.wait()
        now = committed(out)
        lost += sum(now.get(batch) != content for batch, content in before.items())
        before = now
        m += (
            0 if len(Campaign(out)) > len(before) * 20 else 400
        )  # nearly complete: more to do, as a user would extend it
    start(out, m, executor).wait()
    return {"kills": done, "rows": m, "committed_batches_lost_or_changed": lost, "equal": _equal(out, folder, m)}


def kill_workers(folder: Path, m: int, executor: str, rounds: int, fraction: float = 0.3) -> dict[str, int]:
    """Kill a fraction of the workers whenever another tenth of the batches is committed, `rounds` times.

    Dask does not replace a worker that dies during its start: with Dask, kill once, when all workers are running.
    """
    out, killed = folder / f"workers-{executor}.zarr", 0
    process = start(out, m, executor)
    while process.poll() is None and not out.exists():  # until it runs
        time.sleep(0.1)
    seen = 0
    while process.poll() is None:
        time.sleep(0.02)
        if rounds == 0 or len(committed(out)) < seen + m // 200:
            continue
        rounds -= 1
        seen = len(committed(out))
        workers = [pid for pid in _descendants(process.pid) if _is_worker(pid, executor)]
        for pid in random.sample(workers, min(len(workers), max(1, round(fraction * len(workers))))):
            try:
                os.kill(pid, signal.SIGKILL)
                killed += 1
            except ProcessLookupError:
                pass
    failed = sum(Campaign(out).progress().failed.values())
    return {
        "killed": killed,
        "rows": m,
        "rows_failed": failed,
        "status": process.returncode,
        "equal": _equal(out, folder, m),
    }


def _descendants(pid: int) -> list[int]:
    try:
        own = [
            int(child)
            for task in Path(f"/proc/{pid}/task").iterdir()
            for child in (task / "children").read_text().split()
        ]
    except FileNotFoundError:
        return []
    return own + [below for child in own for below in _descendants(child)]


def _is_worker(pid: int, executor: str) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes()
    except FileNotFoundError:
        return False
    return b"nsmbayes.calls.child" in command if executor != "dask" else b"spawn_main" in command


def _equal(out: Path, folder: Path, m: int) -> bool:
    """Whether the arrays are complete and equal to those of an undisturbed run."""
    reference = simulate(slow, PRIOR, m, out=folder / f"undisturbed-{m}.zarr", executor=2, progress=False)
    pairs = zip(Campaign(out).arrays(), reference.arrays(), strict=True)
    return len(Campaign(out)) == m and all(a.tobytes() == b.tobytes() for a, b in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--rows", type=int, default=4_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out")
    parser.add_argument("--executor", default="2")
    parser.add_argument("--store", type=Path, help="file for what was found, as JSON")
    options = parser.parse_args()
    if options.out is not None:
        campaign(options.out, options.rows, options.executor)
        return
    random.seed(options.seed)
    found = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for what, run in {
            "30 % of the workers, pool of 4": lambda: kill_workers(folder, options.rows, "4", 10),
            "30 % of the workers, Dask": lambda: kill_workers(folder, options.rows, "dask", 1),
            "main process": lambda: kill_main(folder, options.rows, options.kills, "2"),
        }.items():
            found[what] = run()
            print(json.dumps({what: found[what]}), flush=True)
    if options.store is not None:
        document = {"attack": "campaigns", "seed": options.seed, "machine": machine.facts(), "detail": found}
        options.store.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
