"""Measure the speed of this machine: training, posteriors, compilation."""

import argparse
import json
import subprocess
import sys
import time
from typing import Any

import jax

from nsmbayes._internal.files import write_text
from nsmbayes.cli import speed
from nsmbayes.experiments import machine


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    kept = jax.config.values["jax_enable_compilation_cache"]
    jax.config.update("jax_enable_compilation_cache", False)  # compilation is also timed
    try:
        document = measure(options)
    finally:
        jax.config.update("jax_enable_compilation_cache", kept)
    print(table(document))
    if options.json is not None:
        write_text(options.json, json.dumps(document, indent=2, allow_nan=False) + "\n")
    return 0


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure on each kind of device; return the results with facts about the machine."""
    chosen = jax.devices()[0]
    devices = {device.platform: device for device in (jax.devices("cpu")[0], chosen)}
    before, found = machine.load(), []
    import_s = import_seconds()
    for device in devices.values():
        if not options.quiet:
            print(f"measuring on {device.platform} ...", file=sys.stderr, flush=True)
        found.append(speed.on_device(device, effort=options.effort))
    return {
        "machine": machine.facts(),
        "load_before": before,
        "load_after": machine.load(),
        "import_s": import_s,
        "chosen_device": chosen.platform,
        "devices": found,
    }


def table(document: dict[str, Any]) -> str:
    """Format the measurements as text."""
    facts = document["machine"]
    lines = [
        f"{facts['cpu']}, {facts['cores']} cores, {facts['memory_gib']} GiB; Python {facts['python']}, "
        f"JAX {facts['packages']['jax']}; load averages {document['load_before']}",
        f"import of the package  {document['import_s']:.2f} s",
        f"device by default      {document['chosen_device']}",
    ]
    for device in document["devices"]:
        rates = device["matrix_gflops"]
        lines += [
            "",
            f"On {device['device']} ({device['kind']})",
            f"  {'matrix products':<38}{rates['float32']:>9.0f} GFLOP/s in float32, {rates['float64']:.0f} in float64",
        ]
        for row in device["training"]:
            name = f"training, d_x = {row['d_x']}"
            lines.append(f"  {name:<38}{row['us_per_simulation']:>9.2f} us per simulation and epoch{_compiled(row)}")
        for row in device["posteriors"]:
            rate = f"{row['effective_draws_per_s']:,.0f} effective draws per second"
            lines.append(f"  {'posterior, ' + row['what']:<38}{row['seconds']:>9.3f} s, {rate}{_compiled(row)}")
    return "\n".join(lines)


def _compiled(row: dict[str, Any]) -> str:
    return f"; compilation {row['compile_s']:.1f} s"


def import_seconds() -> float:
    """Seconds that a new process takes to import everything for a posterior."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import nsmbayes.methods"], check=True)
    return time.perf_counter() - start
