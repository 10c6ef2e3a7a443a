"""The command line interface."""

from nsmbayes.cli.main import entry, main

__all__ = ["entry", "main"]
