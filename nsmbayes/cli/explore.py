"""Serve a local page on which observations can be dragged."""

import argparse
import sys
import webbrowser

from nsmbayes._internal import checks
from nsmbayes.cli.inputs import load_method, read_data
from nsmbayes.errors import InputError
from nsmbayes.explore import explorer_kind, explorer_of


def run(options: argparse.Namespace) -> int:
    """Run the command, until it is interrupted."""
    try:
        from nsmbayes.explore.server import local_server
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != "bokeh":
            raise
        raise InputError("nsmbayes explore needs Bokeh: pip install 'nsmbayes[explore]'.") from error
    port = checks.integer(options.port, "--port", at_most=65535)
    method = load_method(options.model)
    explorer_kind(method)  # raises an error early for methods that cannot be explored
    data = read_data(options, method)
    if not options.quiet:
        print("fitting, and compiling what the page needs ...", file=sys.stderr, flush=True)
    explorer = explorer_of(method, data, beta=options.beta, seed=options.seed)
    explorer.warm()
    server, address = local_server(explorer, port=port, title=f"{explorer.posterior.label}: {options.data.name}")
    server.start()
    print(f"{address}\nThe page is served on this machine only. Ctrl-C ends it.", flush=True)
    if not options.no_browser:
        webbrowser.open(address)
    server.io_loop.start()
    return 0
