"""Named figures in a line, however it joins name and number: `loss=0.5`, `time: 0.134`, `Data 0.002`, `9.3 it/s`."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from flatout.diagnose.logs.readings import Reading

_OF_SAMPLES = "img imgs image images sample samples example examples ex seq seqs frame frames clip clips"
_OF_STEPS = "it its iter iters iteration iterations step steps batch batches"
SAMPLE_UNITS, STEP_UNITS = frozenset(_OF_SAMPLES.split()), frozenset(_OF_STEPS.split())
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_PAIR = re.compile(
    rf"(?<![\w./@-])(?P<name>[A-Za-z][\w./@-]*(?: (?:time|loss|size|step))?)\s*(?:[=:]\s*|\s+)(?P<value>{_NUMBER})"
    rf"(?P<unit>\s?(?:ms|us|µs|s|sec)\b(?!/))?(?![\w:])"
)
_RATE = re.compile(rf"(?P<value>{_NUMBER})\s*(?P<unit>[A-Za-z]*)\s?/\s?(?P<per>s|sec|second)\b(?!\s*[=:])")
_PACE = re.compile(rf"(?P<value>{_NUMBER})\s*(?P<unit>ms|s|sec)\s?/\s?(?P<per>[A-Za-z]+)\b")
# KAIR writes thousands with a comma.
_INTEGER = r"\d{1,3}(?:,\d{3})+(?!\d)|\d+"
_STEP = re.compile(
    r"\b(?:iter(?:ation)?s?|global[_ ]step|steps?|it)(?:\(train\))?\s*[:=#]?\s*[\[(]?\s*"
    rf"(?P<step>{_INTEGER})(?:\s*/\s*(?P<total>{_INTEGER}))?(?!\.?\d)",
    re.IGNORECASE,
)
_EPOCH_ITER = re.compile(r"\[\s*\d+\s*\]\s*\[\s*(?P<step>\d+)\s*/\s*(?P<total>\d+)\s*\]")
# timm: "Train: 0 [  50/1251 (  4%)]"
_TIMM = re.compile(r"\bTrain(?:ing)?:?\s+\d+\s+\[\s*(?P<step>\d+)/(?P<total>\d+)")

# Names in lower case, every sign as "_" and "/" as "_per_", and what they mean.
_MEANINGS = {
    "it_per_s": "its it_per_s it_per_sec iter_per_s iters_per_s iters_per_sec iterations_per_s iterations_per_second "
    "step_per_s steps_per_s steps_per_sec steps_per_second batch_per_s batches_per_s batches_per_second",
    "samples_per_s": "sample_per_s samples_per_s samples_per_sec samples_per_second img_per_s imgs_per_s imgs_per_sec "
    "image_per_s images_per_s images_per_sec images_per_second ex_per_s examples_per_s examples_per_second",
    "time_s": "time step_time iter_time batch_time iteration_time time_per_step time_per_iter sec_per_step s_per_step "
    "sec_per_iter s_per_iter seconds_per_step step_s iter_s step_ms iter_ms time_ms dt",
    "data_s": "data data_time data_s data_ms data_wait data_wait_ms avg_data_time data_load_time load_time dataload "
    "dataload_time dataloading_time",
    "loss": "loss total_loss g_loss loss_g loss_step",
    "batch": "batch_size bs batchsize total_batch_size global_batch_size",
    "step": "step iter iteration global_step",
}
_KEYS = {name: meaning for meaning, names in _MEANINGS.items() for name in names.split()}
_UNITS = {"ms": 1e-3, "us": 1e-6, "µs": 1e-6, "s": 1.0, "sec": 1.0, "": 1.0}


@lru_cache(maxsize=4096)  # a log has few names and many lines
def meaning(name: str) -> tuple[str, float] | None:
    """What a name means, and the factor from its unit to ours."""
    key = re.sub(r"[\W_]+", "_", name.lower().replace("/", "_per_")).strip("_")
    found = _KEYS.get(key) or _KEYS.get(key.removeprefix("train_").removeprefix("train_per_"))
    return None if found is None else (found, 1e-3 if key.endswith("_ms") else 1.0)


def pairs(text: str) -> dict[str, float]:
    """Every figure of the text whose name we know, by our name for it; the first of two counts."""
    found: dict[str, float] = {}
    for match in _RATE.finditer(text) if "/s" in text or "/ s" in text else ():
        unit = match["unit"].lower()
        if unit in STEP_UNITS:
            found.setdefault("it_per_s", float(match["value"]))
        elif unit in SAMPLE_UNITS or not unit:  # timm prints "817.10/s" and means samples
            found.setdefault("samples_per_s", float(match["value"]))
    for match in _PACE.finditer(text) if "s/" in text or "s /" in text else ():
        if match["per"].lower() in STEP_UNITS:
            found.setdefault("time_s", float(match["value"]) * _UNITS[match["unit"]])
    for match in _PAIR.finditer(text):
        meant = meaning(match["name"]) or meaning(match["name"].rpartition(" ")[2])
        if meant is not None:
            name, factor = meant
            unit = (match["unit"] or "").strip()
            found.setdefault(name, float(match["value"]) * (_UNITS[unit] if unit else factor))
    return found


def line_reading(number: int, text: str, stamp_s: float | None) -> Reading | None:
    """The reading of a plain line; None if it says nothing about the pace."""
    match = _EPOCH_ITER.search(text) or _TIMM.search(text) or _STEP.search(text)
    figures: dict[str, Any] = dict(pairs(text))
    step = _whole(match["step"]) if match else figures.get("step")
    if step is None and not {"it_per_s", "samples_per_s", "time_s"} & set(figures):
        return None
    if match is not None and not figures and stamp_s is None:
        return None
    total = _whole(match["total"]) if match and match["total"] else None
    figures.pop("step", None)
    return Reading(line=number, source="lines", step=step, total=total, stamp_s=stamp_s, **figures)


def _whole(text: str) -> float:
    return float(text.replace(",", ""))


def mapping(text: str) -> Mapping[str, Any] | None:
    """A line that is one dict: Hugging Face prints Python's, mmcv's `log.json` and many others hold JSON."""
    begin, end = text.find("{"), text.rfind("}")
    if begin < 0 or end <= begin or text[end + 1 :].strip():
        return None
    inner = text[begin : end + 1]
    for read in (json.loads, ast.literal_eval):
        try:
            value = read(inner)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        return value if isinstance(value, dict) and all(isinstance(key, str) for key in value) else None
    return None


def mapping_reading(number: int, values: Mapping[str, Any], stamp_s: float | None) -> Reading | None:
    figures: dict[str, Any] = {}
    for name, value in values.items():
        meant, number_value = meaning(name), _number(value)
        if meant is not None and number_value is not None:
            figures.setdefault(meant[0], number_value * meant[1])
    step = figures.pop("step", None)
    if step is None and not figures:
        return None
    return Reading(line=number, source="dicts", step=step, stamp_s=stamp_s, **figures)


def _number(value: Any) -> float | None:
    # Some print their figures as words.
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        return float(value)
    except ValueError:
        return None
