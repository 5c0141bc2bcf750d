"""The loader pins, but what is copied is not pinned.

What it is: `pin_memory=True`, and yet the tensors that go to the device lie in pageable memory. The loader pins
tensors in lists, tuples and dicts only: a batch of a class of your own passes through untouched unless it has a
`pin_memory()` method. Or the batch is changed on the host before the copy (`x.float()`, `x / 255`), which makes a
new, pageable tensor.

Why the GPU idles: as with any copy from pageable memory, `non_blocking=True` or not: the host waits until the device
has come that far in its queue.

How it shows in a run: the loader's own setting, and copies of which none is pinned.

The fix: give the batch a method `def pin_memory(self): self.x = self.x.pin_memory(); return self`, or let the collate
function return a dict; make changes of dtype or scale on the device, after the copy. Then `.to(device,
non_blocking=True)`.

What to expect: the host no longer waits for the copies.

When it is fine: the device is busy all the same, or there is little to copy.
"""

from __future__ import annotations

from collections.abc import Iterator

from flatout.problems.cases import HERE, Case, loader, on_gpu, run
from flatout.problems.found import FoundInRun
from flatout.problems.transfer.copying import blocked_ms, copies, gain_unblocked, listed, pinned_part
from flatout.records.evidence import Evidence
from flatout.records.report import CopySite

CODE = "TR203"
TITLE = "The loader pins, but the copies are not pinned"
REMEDY = "loader.pin"
_NONE = 0.1
_EACH_STEP = 0.9


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    use = run.training_loader
    sites = copies(run)
    enough = sum(site.per_step for site in sites) >= _EACH_STEP
    if not run.on_gpu or use is None or not use.settings.get("pin_memory") or not enough or pinned_part(sites) > _NONE:
        return
    gain = gain_unblocked(run, sites, to_pin=True)
    if gain is None:
        return
    held_ms = blocked_ms(run, sites)
    count = sum(site.per_step for site in sites)
    yield FoundInRun(
        location=sites[0].location,
        evidence={
            "pin_memory": "True",
            "pinned_share": round(pinned_part(sites), 2),
            "copies_per_step": round(count, 1),
            "h2d_ms_per_step": round(held_ms, 2),
            "collate_fn": str(use.settings.get("collate_fn")),
            "lines": listed(run, sites),
        },
        cause=f"pin_memory=True reaches none of the {count:.3g} copies a step, which block the host for"
        f" {held_ms:.3g} of {run.step_ms:.3g} ms",
        change="a pin_memory() method in the batch's class (or collate to a dict), and .to(device, non_blocking=True)",
        predicted_gain=gain,
    )


_MS = {"data": 1.0, "h2d": 9.0, "forward": 40.0, "backward": 41.0, "optimizer": 8.0, "other": 1.0}
_GPU = on_gpu(util_mean=70.0, drained_share=0.4)
_OWN_TYPE = CopySite(HERE, "to", 12.0, 9.0, 4.2e6, 0.0, 0.0)
CASES = (
    Case(
        "finds it when a batch of the script's own type is not pinned",
        run(gpu=_GPU, ms=_MS, copies=(_OWN_TYPE,)),
        found=True,
    ),
    Case(
        "quiet when the loader was not asked to pin",
        run(gpu=_GPU, ms=_MS, copies=(_OWN_TYPE,), loaders=(loader(pin_memory=False),)),
        found=False,
    ),
    Case(
        "quiet when the batch is pinned and a scalar beside it is not",
        run(
            gpu=_GPU,
            ms=_MS,
            copies=(
                CopySite(HERE, "train", 2.0, 8.9, 4.2e6, 1.0, 1.0),
                CopySite(HERE, "train", 1.0, 0.1, 4.0, 0.0, 0.0),
            ),
        ),
        found=False,
    ),
    Case(
        "quiet when the device is busy all the same",
        run(gpu=on_gpu(drained_share=0.0), ms=_MS, copies=(_OWN_TYPE,)),
        found=False,
    ),
)
