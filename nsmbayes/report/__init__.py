from nsmbayes.report.page import write_report as write_report
from nsmbayes.report.plots import plot_calibration as plot_calibration
from nsmbayes.report.plots import plot_delay_profile as plot_delay_profile
from nsmbayes.report.plots import plot_influence as plot_influence
from nsmbayes.report.plots import plot_marginals as plot_marginals
from nsmbayes.report.plots import plot_pairs as plot_pairs
from nsmbayes.report.plots import plot_trajectories as plot_trajectories
from nsmbayes.report.plots import plot_weights as plot_weights
