"""The experiments of the paper, and additional ones."""

from dataclasses import replace
from typing import Any

from nsmbayes.errors import InputError
from nsmbayes.experiments.spec import DataSpec, Experiment, MethodSpec
from nsmbayes.methods import NSMBayes, NSMBayesConj

OURS = tuple(map(MethodSpec, ("nle", "nsm-bayes", "nsm-bayes-conj")))
BASELINES = tuple(map(MethodSpec, ("npl-mmd", "rsnle", "npe-rs", "ace", "gbi-sr")))
_SIR: dict[str, Any] = {"task": "sir", "m": 50_000, "methods": (*OURS, MethodSpec("ace"), MethodSpec("gbi-sr"))}

# --- the paper's ---

GNK = Experiment(
    "gnk",
    "Table 1: eight methods on g-and-k data",
    "gnk",
    (*OURS, *BASELINES),
    method_properties=True,
    figures=("illustration", "marginals", "traces", "summaries"),
)
SIR = Experiment(
    "sir",
    "SIR epidemics, one in twenty undercounted",
    figures=("trajectories", "times", "marginals", "traces"),
    **_SIR,
)
SIR_HEAVY = Experiment(
    "sir-heavy",
    "SIR epidemics with Cauchy noise",
    data=(DataSpec("heavy-tailed"),),
    figures=("times", "marginals"),
    **_SIR,
)
RADIO = Experiment(
    "radio",
    "radio propagation with faulty receivers",
    "radio",
    (*OURS, MethodSpec("ace")),
    m=50_000,
    draws=1000,
    figures=("series", "profile", "pairs", "marginals"),
)
SIR_ABLATION = Experiment(
    "sir-ablation",
    "the scatter behind the weight on SIR data, robust and not",
    "sir",
    tuple(
        MethodSpec("nsm-bayes-conj", f"nsm-bayes-conj, {scatter}{', one level' * single}", options)
        for single in (False, True)
        for scatter in ("mcd", "sample")
        for options in [{"scatter": scatter} | ({"noise_levels": (0.0,)} if single else {})]
    ),
    m=50_000,
    figures=("marginals",),
)
GNK_ABLATION = Experiment(
    "gnk-ablation",
    "the scatter behind the weight on g-and-k data, robust and not",
    "gnk",
    tuple(
        MethodSpec(method, f"{method}, {scatter}", {"scatter": scatter})
        for method in ("nsm-bayes", "nsm-bayes-conj")
        for scatter in ("mcd", "sample")
    ),
    figures=("marginals", "traces"),
)
SIR_BETA = Experiment(
    "sir-beta",
    "NSM-Bayes-conj at several learning rates",
    "sir",
    tuple(MethodSpec("nsm-bayes-conj", f"beta = {beta:g}", beta=beta) for beta in (1e-4, 1e-3, 1e-2, 0.1, 1.0)),
    m=50_000,
    repeats=1,
    figures=("marginals",),
)
GNK_BUDGET = Experiment(
    "gnk-npl-mmd",
    "NPL-MMD with 2.56e8 simulations",
    "gnk",
    (
        MethodSpec("npl-mmd"),
        MethodSpec("npl-mmd", "npl-mmd, more", {"simulations": 512, "steps": 1000, "rate": 0.1}, m=256_000_000),
    ),
    repeats=1,
    figures=("marginals",),
)
SIR_BUDGET = Experiment(
    "sir-budget",
    "ACE with twice and GBI-SR with 44 times the simulations",
    "sir",
    (
        MethodSpec("ace"),
        MethodSpec("ace", "ace, more", beta=100.0, m=100_000),
        MethodSpec("gbi-sr"),
        MethodSpec(
            "gbi-sr", "gbi-sr, more", {"simulations": 200, "warmup": 1000, "draws": 10_000}, beta=1.0, m=2_201_400
        ),
    ),
    m=50_000,
    repeats=1,
    figures=("marginals",),
)

# --- beyond the paper ---

FRACTIONS = (0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.45)
DISTANCES = (1.0, 2.0, 4.0, 8.0, 32.0, 1e2, 1e4)
SIZES = (10, 30, 100, 1000, 10_000)
ZETAS = (0.5, 1.0, 2.0)
BUDGETS = (1000, 3000, 10_000, 30_000, 100_000)


def _sweep(
    name: str,
    title: str,
    *,
    axis: str = "",
    methods: tuple[MethodSpec, ...] = OURS,
    data: tuple[DataSpec, ...] = (DataSpec(),),
) -> Experiment:
    axis = axis or name
    figures = ("sweep", "efficiency") if axis == "n" else ("sweep",)
    return Experiment(f"gnk-{name}", title, "gnk", methods, data, repeats=8, axis=axis, table="sweep", figures=figures)


SWEEPS = (
    _sweep(
        "fraction",
        "how many outliers, at -50",
        data=tuple(DataSpec("shift", fraction=fraction) if fraction else DataSpec("none") for fraction in FRACTIONS),
    ),
    _sweep(
        "distance",
        "how far out a tenth of the data is",
        data=tuple(DataSpec("far", fraction=0.1, distance=distance) for distance in DISTANCES),
    ),
    _sweep(
        "size",
        "how many observations",
        axis="n",
        data=tuple(DataSpec(contamination, n=n) for contamination in ("shift", "none") for n in SIZES),
    ),
    _sweep(
        "zeta",
        "how fast the weight falls",
        methods=tuple(
            MethodSpec(kind.name, f"{kind.name}, zeta = {zeta:g}", {"weight": replace(kind.default_weight, zeta=zeta)})
            for kind in (NSMBayes, NSMBayesConj)
            for zeta in ZETAS
        ),
        data=(DataSpec(), DataSpec("near"), DataSpec("none")),
    ),
    _sweep(
        "simulations",
        "how many simulations",
        axis="m",
        methods=tuple(MethodSpec(spec.method, f"{spec.method}, m = {m}", m=m) for spec in OURS for m in BUDGETS),
    ),
)

OUTLIERS = (
    DataSpec(),
    DataSpec("none"),
    DataSpec("far", fraction=0.05),
    DataSpec("far", fraction=0.3),
    DataSpec("near", fraction=0.1),
    DataSpec("clustered", fraction=0.1),
    DataSpec("clustered", fraction=0.3),
    DataSpec("both-sided", fraction=0.3),
    DataSpec("population", fraction=0.2),
    DataSpec("stuck", fraction=0.1),
    DataSpec("drift", fraction=0.1),
    DataSpec("rounded", fraction=0.1),
)


def _bench(task: str, m: int, data: tuple[DataSpec, ...]) -> Experiment:
    title = f"outliers of every kind on {task} data"
    shown: dict[str, Any] = {"table": "bench", "figures": ("bench",)}
    return Experiment(f"outliers-{task}", title, task, OURS, data, m=m, repeats=40, repeats_per_network=3, **shown)


BENCHES = (
    _bench("gnk", 100_000, OUTLIERS),
    _bench("gaussian", 50_000, OUTLIERS),
    _bench("pk", 50_000, OUTLIERS),
    _bench("sir", 50_000, OUTLIERS),
    _bench("radio", 50_000, OUTLIERS),
)

PAPER = (GNK, SIR, SIR_HEAVY, RADIO)
EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (*PAPER, SIR_ABLATION, GNK_ABLATION, SIR_BETA, GNK_BUDGET, SIR_BUDGET, *SWEEPS, *BENCHES)
}


def get(name: str) -> Experiment:
    """Return the experiment called `name`; raise `InputError` if there is none."""
    if name not in EXPERIMENTS:
        raise InputError(f"There is no experiment {name!r}; there are: {', '.join(EXPERIMENTS)}, and all.")
    return EXPERIMENTS[name]
