"""A setting that is meant to make training faster is not used by any code.

What it is: an option, a key of a config file or a field such as `accumulation_steps`, `prefetch`, `cache_size` or
`eval_interval` is declared and set, and no code of the training uses it.

Why the GPU idles: whoever sets it believes the cost is dealt with. It is not: without accumulation the optimizer steps
after every batch, without the interval the evaluation runs as often as before.

How it shows in source: the name is read nowhere in the files of the training, or only to be stored, checked or printed,
and the settings are not handed on as a whole to code that may read it. In configs for mmcv 1.x also a key that only its
successor knows: `accumulative_counts`.

The fix: read it where it belongs, or remove it:

    loss = loss / args.accumulation_steps
    loss.backward()
    if (step + 1) % args.accumulation_steps == 0:
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

What to expect: what the setting would have gained; removing it gains nothing by itself, but nobody tunes it in vain.

When it is fine: the setting is kept for old command lines; then say so in its help.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from flatout.problems.config.ignored_settings import find_ignored_settings
from flatout.problems.config.precision_settings import SWITCHES
from flatout.problems.found import FoundInSource
from flatout.records.message import message, verbatim
from flatout.records.source import Place, Related
from flatout.source.code import Code
from flatout.source.syntax.config_files import UncertainConfig, parse_config
from flatout.source.syntax.nodes import dotted_name, is_call
from flatout.source.training.job_settings import DeclaredSetting, JobSettings

CODE = "CF803"

_ACCUMULATION = re.compile(r"accum|(^|_)iters?_to_accum|cumulative_iters|^update_freq$|^iter_size$", re.I)
_SPEED = re.compile(
    r"accum|cumulative_iters|(^|_)update_freq$|prefetch|persistent_workers|pin_memory|non_blocking"
    r"|^(num|n)_?workers$|^workers$|workers_per_gpu|num_(data_|loader_)?workers|loader_workers"
    r"|(^|_)cache(_size|_gb|_mb|_limit|_rate|_num|_images|_ram|_dataset|_data)?$|^(use|ram|enable)_cache|cache_size"
    r"|^(eval|val|valid|validation|evaluate|test|checkpoint|ckpt|save|log|print|vis)_"
    r"(interval|freq|frequency|every|period|step|steps|epochs|every_n\w*|per_\w+)$"
    r"|efficient_test|channels_last|(^|_)fused(_|$)|gradient_checkpointing|(^|_)use_checkpoint|activation_checkpoint"
    r"|^per_device_\w*batch_size$|empty_cache",
    re.I,
)
_STEMS = (
    "accum", "cumul", "update_freq", "prefetch", "persistent", "pin_mem", "non_block", "worker", "cache", "interval",
    "freq", "every", "period", "_step", "_epochs", "_per_", "efficient_test", "channels_last", "fused", "checkpoint",
    "batch_size",
)  # fmt: skip
_STEPPING = re.compile(r"opt|scaler", re.I)
_NOTHING = (0, 1, None, False, "", "none", "None")
_OF_MMCV_1 = ("optimizer_config", "samples_per_gpu", "workers_per_gpu", "checkpoint_config")


def in_source(code: Code) -> Iterator[FoundInSource]:
    dead = {
        setting.place: (setting, group)
        for group in code.job_settings
        for setting in group.declared_like(_SPEED, _STEMS)
        if setting.meaning not in SWITCHES and _is_sure(setting, group) and group.is_dead(setting)
    }
    # Those of a loader are reported at the loader, which tells more.
    if any(setting.meaning is not None for setting, _ in dead.values()):
        for found in find_ignored_settings(code):
            for missed in found.missed:
                for declared in missed.declared:
                    dead.pop(declared.place, None)
    for setting, group in dead.values():
        yield _finding(setting, group)
    yield from _find_mmcv_keys(code)


def _is_sure(setting: DeclaredSetting, group: JobSettings) -> bool:
    """An option can be given anything; of the others only those that ask for something."""
    if setting.kind == "option":
        return True
    if setting.value in _NOTHING or (setting.kind == "constant" and not setting.name.isupper()):
        return False
    # A framework takes its Python configs as a whole, without any code of the project that could be seen to.
    file = setting.place.file
    return not file.endswith(".py") or any(file == module.shown for module in group.modules)


def _finding(setting: DeclaredSetting, group: JobSettings) -> FoundInSource:
    if setting.value is None or setting.kind == "option":
        words = setting.label
    else:
        words = message("problems.setting_is", setting=setting.written, value=setting.value)
    step = _step_of_every_batch(group) if _ACCUMULATION.search(setting.name) else None
    return FoundInSource(
        place=setting.place,
        cause=message("cf803.source_cause" if step is None else "cf803.source_accumulation", setting=words),
        change=message("cf803.source_change", setting=setting.name),
        related=() if step is None else (Related(step, message("related.steps_after_batch")),),
    )


def _step_of_every_batch(group: JobSettings) -> Place | None:
    ours = {id(module) for module in group.modules}
    for region in group.training.regions:
        for point in region.main_path() if id(region.module) in ours else ():
            call = point.node
            if is_call(call, "step") and _STEPPING.search(dotted_name(call.func)):
                return region.module.place(call)
    return None


def _find_mmcv_keys(code: Code) -> Iterator[FoundInSource]:
    """mmcv 1.x takes what it does not know without a word; `accumulative_counts` is of mmengine."""
    for module in code.project.mentioning("accumulative_counts"):
        if "dict(" not in module.text or not any(word in module.text for word in _OF_MMCV_1):
            continue
        if "optim_wrapper" in module.text:
            continue
        try:
            leaves = parse_config(module.shown, lambda _, text=module.text: text)  # type: ignore[misc]
        except UncertainConfig:
            continue
        for path, leaf in leaves.items():
            if path[-1] == "accumulative_counts" and leaf.line is not None:
                yield FoundInSource(
                    place=module.at(leaf.line),
                    cause=message("cf803.source_mmcv"),
                    change=verbatim(
                        'optimizer_config = dict(type="GradientCumulativeOptimizerHook", cumulative_iters=…)'
                    ),
                )
