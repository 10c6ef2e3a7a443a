"""nsmbayes: amortised, provably robust simulation-based inference."""

from nsmbayes import tasks as tasks
from nsmbayes._checks import InputError as InputError
from nsmbayes.calibration import GridCalibration as GridCalibration
from nsmbayes.calibration import PathCalibration as PathCalibration
from nsmbayes.calibration import ReweightingCalibration as ReweightingCalibration
from nsmbayes.calibration import RootCalibration as RootCalibration
from nsmbayes.calibration import StochasticCalibration as StochasticCalibration
from nsmbayes.diagnostics import covers as covers
from nsmbayes.diagnostics import mmd2 as mmd2
from nsmbayes.diagnostics import mse as mse
from nsmbayes.methods import ACE as ACE
from nsmbayes.methods import GBISR as GBISR
from nsmbayes.methods import NLE as NLE
from nsmbayes.methods import NPE as NPE
from nsmbayes.methods import NPERS as NPERS
from nsmbayes.methods import NPLMMD as NPLMMD
from nsmbayes.methods import RSNLE as RSNLE
from nsmbayes.methods import NotTrainedError as NotTrainedError
from nsmbayes.methods import NSMBayes as NSMBayes
from nsmbayes.methods import NSMBayesConj as NSMBayesConj
from nsmbayes.methods import load as load
from nsmbayes.priors import GaussianPrior as GaussianPrior
from nsmbayes.robustness import Certificate as Certificate
from nsmbayes.robustness import certify as certify
from nsmbayes.simulators import BudgetError as BudgetError
from nsmbayes.simulators import JaxSimulator as JaxSimulator
from nsmbayes.simulators import NumpySimulator as NumpySimulator
from nsmbayes.simulators import simulate_sets as simulate_sets
from nsmbayes.training import TrainingSettings as TrainingSettings
from nsmbayes.weights import IMQ as IMQ
from nsmbayes.weights import Constant as Constant
from nsmbayes.weights import PlateauIMQ as PlateauIMQ
from nsmbayes.weights import SquaredExponential as SquaredExponential

__version__ = "0.1.0"
