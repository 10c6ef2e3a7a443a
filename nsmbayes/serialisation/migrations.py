"""Migration of models in older formats, from each format to the next."""

from collections.abc import Callable
from typing import Any

import numpy as np

FORMAT = 10
"""The format that `write_model` writes."""

Document = tuple[dict[str, Any], dict[str, np.ndarray]]


def _from_format_1(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Document:
    """Format 1 had the options of surrogate and sampler next to the others, and other names for some of them."""
    kept = {name: header[name] for name in ("arrays_sha256",) if name in header}
    header = dict(header)
    config = dict(header["options"]) if "options" in header else header
    weight = dict(config.get("weight") or {})
    if "reach" in weight:
        weight["cutoff_radius"] = weight.pop("reach")
    names = ("parameter_names", "scatter", "scaling", "whiten")
    new = {name: config[name] for name in names if name in config}
    new |= {"grid_steps": config.get("lattice")}
    if weight:
        new |= {"weight": weight, "noise_levels": config.get("levels", [0.0])}
    if "calibration" in config:
        new["calibration"] = _calibration_1(config["calibration"])
    if header["method"] == "nsm-bayes-conj":
        new |= {name: config[name] for name in ("scale_theta", "hidden")}
        new["resolution"] = config.get("resolution", 0.0)
    else:
        noisy = tuple(config.get("levels", (0.0,))) != (0.0,)
        new["surrogate"] = _surrogate_1(config, paper=bool(header.get("gaussian_flow")), noisy=noisy)
        new["sampler"] = {"kind": config["sampler"], **{name: config[name] for name in ("chains", "warmup", "draws")}}
    renamed = {"x_range" if name == "seen" else name: array for name, array in arrays.items()}
    return {"format": 2, "method": header["method"], "config": new} | kept, renamed


def _calibration_1(calibration: dict[str, Any] | None) -> dict[str, Any] | None:
    if calibration is None:
        return None
    kinds = {"RootCalibration": "root", "StochasticCalibration": "stochastic"}
    return calibration | {"kind": kinds.get(calibration["kind"], calibration["kind"])}


def _surrogate_1(options: dict[str, Any], *, paper: bool, noisy: bool) -> dict[str, Any]:
    hidden = options["hidden"]
    if options["surrogate"] == "mdn":
        names = ("components", "floor", "ceiling", "ensemble")
        return {"kind": "mdn", "hidden": hidden, "factor": "covariance"} | {name: options[name] for name in names}
    found: dict[str, Any] = {"kind": "maf"} | ({} if hidden is None else {"hidden": hidden[0]})
    if not noisy:
        return found | {"squash": not paper, "allow_one_dimension": paper}
    found |= {"base_floor": options["floor"], "base_ceiling": options["ceiling"]}
    return found | ({} if hidden is None else {"base_hidden": hidden})


def _from_format_2(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Document:
    """Format 2 stored precision factors component by component, with diagonal and other entries in one triangle."""
    surrogate = header.get("config", {}).get("surrogate") or {}
    d = len(arrays.get("model.scale_x.centre", ()))
    factor = surrogate.get("factor") or ("precision" if d > 5 else "covariance")
    if surrogate.get("kind") == "mdn" and factor == "precision":
        K, below = surrogate["components"], d * (d - 1) // 2
        last = f"model.layers[{len(surrogate.get('hidden') or (64, 64, 64))}]"
        axes = {name: -1 - name.endswith(".weight") for name in arrays if last in name}
        if not axes or any(arrays[name].shape[axis] != K * (1 + 2 * d + below) for name, axis in axes.items()):
            raise ValueError("The last layer has not as many outputs as the options say.")
        entries = np.arange(d + below)
        old = np.concatenate([entries[d:], entries[::-1]]).reshape(d, d)
        entries = np.arange(below)
        new = np.concatenate([entries[d - 1 :], entries[::-1]]).reshape(d - 1, d - 1)
        rows, columns = np.tril_indices(d, -1)
        lower = old[rows, columns][np.argsort(new[rows - 1, columns])]
        start = (d + below) * np.arange(K)[:, None]
        order = np.concatenate([(start + np.diagonal(old)).ravel(), (start + lower).ravel()]) + K + K * d
        order = np.concatenate([np.arange(K + K * d), order])
        arrays = arrays | {name: arrays[name].take(order, axis=axis) for name, axis in axes.items()}
    return header | {"format": 3}, arrays


def _from_format_3(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Document:
    """Format 3 only had weights by distance; methods saved in it keep computing the same results."""
    if header.get("method") == "nsm-bayes":
        header = header | {"config": {"excess": None} | header["config"]}
    return header | {"format": 4}, arrays


def _from_format_4(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Document:
    """Format 4 did not store the names of the columns of x."""
    if "posterior" in header:
        return header | {"format": 5, "x_names": None}, arrays
    return header | {"format": 5, "config": {"x_names": None} | header["config"]}, arrays


def _from_format_5(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Document:
    """In format 5, NSM-Bayes-conj only had weights by distance, and posteriors did not store their warnings."""
    if "posterior" in header:
        return header | {"format": 6, "warnings": None, "dropped": 0.0}, arrays
    if header.get("method") == "nsm-bayes-conj":
        header = header | {"config": {"excess": None} | header["config"]}
    return header | {"format": 6}, arrays


def _from_format_6(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Document:
    """Format 6 only had Gaussian priors, which are stored as arrays, as in later formats."""
    return header | {"format": 7}, arrays


def _from_format_7(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Document:
    """Format 7 had no posteriors that are corrected for the error of the surrogate."""
    if "statistics" in header and "references" in arrays:
        arrays = arrays | {"correction": np.zeros(2 * arrays["references"].shape[-1] + 1)}
    return header | {"format": 8}, arrays


def _from_format_8(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Document:
    """In format 8, excess was found by another algorithm, with other options."""
    if header.get("config", {}).get("excess"):
        header = header | {"config": header["config"] | {"excess": {"kind": "excess"}}}
    return header | {"format": 9}, arrays


def _from_format_9(header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Document:
    """In format 9, all trends had the same bound, and mixtures of more than five columns five components by default."""
    if "model.trend.slope" in arrays:
        arrays = arrays | {"model.trend.bound": np.asarray(10.0, arrays["model.trend.slope"].dtype)}
    surrogate = header.get("config", {}).get("surrogate") or {}
    many = len(arrays.get("model.scale_x.centre", ())) > 5
    if many and surrogate.get("kind") == "mdn" and surrogate.get("components") is None:
        header = header | {"config": header["config"] | {"surrogate": surrogate | {"components": 5}}}
    return header | {"format": 10}, arrays


MIGRATIONS: dict[int, Callable[[dict[str, Any], dict[str, np.ndarray]], Document]] = {
    1: _from_format_1,
    2: _from_format_2,
    3: _from_format_3,
    4: _from_format_4,
    5: _from_format_5,
    6: _from_format_6,
    7: _from_format_7,
    8: _from_format_8,
    9: _from_format_9,
}
"""The function that migrates each older format to the next."""
