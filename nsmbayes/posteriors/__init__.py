from nsmbayes.posteriors.conjugate import ConjugatePosterior as ConjugatePosterior
from nsmbayes.posteriors.drawn import DrawnPosterior as DrawnPosterior
from nsmbayes.posteriors.generalised import GeneralisedPosterior as GeneralisedPosterior
from nsmbayes.posteriors.learning_rate import Calibration as Calibration
from nsmbayes.posteriors.learning_rate import Verdict as Verdict

Posterior = ConjugatePosterior | GeneralisedPosterior
