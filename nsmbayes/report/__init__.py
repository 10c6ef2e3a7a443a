"""The one-page report of a posterior."""

from nsmbayes.report.page import write_report

__all__ = ["write_report"]
