from nsmbayes.posteriors.conjugate import ConjugatePosterior as ConjugatePosterior
from nsmbayes.posteriors.learning_rate import Calibration as Calibration
from nsmbayes.posteriors.learning_rate import Verdict as Verdict
