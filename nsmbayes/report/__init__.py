"""The one-page report of a posterior, and the page on its data."""

from nsmbayes.report.diagnosis import Diagnosis, Section, diagnose
from nsmbayes.report.page import write_report

__all__ = ["write_report", "diagnose", "Diagnosis", "Section"]
