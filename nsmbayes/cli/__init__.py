"""The command line."""

from nsmbayes.cli.main import main

__all__ = ["main"]
