"""Outliers, or a wrong simulator? One page on observations in a CSV file, for a saved model."""

import argparse
import json
import textwrap

from nsmbayes import tasks
from nsmbayes._internal.files import write_text
from nsmbayes._internal.text import escape
from nsmbayes.cli.inputs import load_method, read_data
from nsmbayes.cli.simulate import named_simulator
from nsmbayes.report import diagnose


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    method = load_method(options.model)
    simulator = None
    if options.simulator is not None:
        own = ":" in options.simulator
        simulator = named_simulator(options.simulator) if own else tasks.get(options.simulator)
    posterior = method.build_posterior(read_data(options, method), beta=options.beta, seed=options.seed)
    found = diagnose(method, posterior, simulator, calibration=options.calibration, seed=options.seed)
    for part in (found.reach, found.verdict):
        if part is not None:
            print(escape(part.explain()))
    for section in found.sections:
        print("\n" + section.title)
        for sentence in section.sentences:
            print(textwrap.fill(escape(sentence), 110))
    if options.json is not None:
        write_text(options.json, json.dumps(found.as_json(), indent=2) + "\n")
    page = found.write(options.out, title=f"Diagnosis of {options.data.name}")
    print(f"\nPage: {escape(str(page))}")
    return 0
