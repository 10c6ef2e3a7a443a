"""The one-page report of a posterior, and the one-page diagnosis of its data."""

from nsmbayes.report.diagnosis import Diagnosis, diagnose
from nsmbayes.report.page import write_report
from nsmbayes.report.sections import Section

__all__ = ["write_report", "diagnose", "Diagnosis", "Section"]
