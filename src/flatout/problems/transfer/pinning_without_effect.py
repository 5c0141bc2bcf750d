"""The loader has pin_memory=True, but the tensors that are copied are not pinned.

What it is: `pin_memory=True`, and yet the tensors that go to the device are in pageable memory. The loader pins tensors
in lists, tuples and dicts only: a batch of your own class is skipped unless it has a `pin_memory()` method. Or the
batch is changed on the host before the copy (`x.float()`, `x / 255`), which makes a new, pageable tensor.

Why the GPU idles: as with any copy from pageable memory, `non_blocking=True` or not: the host waits until the device
has reached that point of its queue.

How it shows in a run: the loader's setting, and copies none of which is pinned.

How it shows in source: a pinning DataLoader whose `collate_fn` returns an object of a class of the project that has no
`pin_memory` method and is no dict, list or tuple (a dataclass is none of these); or a step that changes the batch on
the host, `(images / 255).to(device)`, before it copies it.

The fix: give the batch a method `def pin_memory(self): self.x = self.x.pin_memory(); return self`, or let the collate
function return a dict; make changes of dtype or scale on the device, after the copy. Then `.to(device,
non_blocking=True)`. From outside `loader.pin` pins batches of any class, and `transfer.async` does not wait for them.

What to expect: the host no longer waits for the copies.

When it is fine: the device is busy anyway, or there is little to copy.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from flatout.problems.found import FoundInRun, FoundInSource, found_in_step, step_of
from flatout.problems.transfer.copies import blocked_ms, list_sites, pinned_part, training_copies, unblock
from flatout.records.evidence import Evidence
from flatout.records.message import message
from flatout.records.source import Related
from flatout.source.code import Code
from flatout.source.flow.devices import moves_to
from flatout.source.syntax.module import Class
from flatout.source.syntax.nodes import called_name, is_call, last_name, short_text
from flatout.source.training.loaders import Loader, loader_argument, loader_setting, resolve_collate

CODE = "TR203"
REMEDY = "loader.pin"
_NONE = 0.1
_EACH_STEP = 0.9


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    use = run.training_loader
    sites = training_copies(run)
    enough = sum(site.per_step for site in sites) >= _EACH_STEP
    if not run.on_gpu or use is None or not use.settings.get("pin_memory") or not enough or pinned_part(sites) > _NONE:
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
            "lines": list_sites(sites),
        },
        cause=message("tr203.cause", copies=count, blocked_ms=held_ms, step_ms=run.step_ms),
        change=message("tr203.change"),
        edits=unblock(run, sites, to_pin=True),
    )


def in_source(code: Code) -> Iterator[FoundInSource]:
    pinning = [made for made in code.loaders if made.trains and _pins(made, code)]
    for made in pinning:
        # No `pin_memory`, and none of the mappings, sequences and tuples that the loader looks into: it is passed over.
        classes = (cls for cls in _batch_classes(made, code) if not code.project.methods(cls, "pin_memory"))
        batch = next((cls for cls in classes if _is_plain(cls, code, 0)), None)
        if batch is not None:
            yield FoundInSource(
                place=made.place,
                cause=message("tr203.source_class", batch_class=batch.name),
                change=message("tr203.source_class_change", batch_class=batch.name),
                related=(Related(batch.module.place(batch.node), message("related.collated")),),
            )
    for region, _, call in code.calls_each_step("to", "cuda") if pinning else ():
        assert isinstance(call.func, ast.Attribute)
        changed = call.func.value
        if moves_to(call) != "device" or not _is_new(changed) or code.tensors.of(region).of(changed) != "host":
            continue
        if any(code.training.are_together(made.function.module, region.module) for made in pinning):
            yield found_in_step(
                region,
                call,
                message("tr203.source_new_tensor", code=short_text(changed, 40), step=step_of(region)),
                message("tr203.source_new_tensor_change"),
                severity="low",
            )


def _pins(made: Loader, code: Code) -> bool:
    """Known to, or by a rule such as `device.type == "cuda"`."""
    pins = loader_setting(made, "pin_memory", code.values)
    if pins.state == "unknown":
        return isinstance(loader_argument(made, "pin_memory"), ast.Compare | ast.Call)
    return not pins.is_off()


def _is_new(node: ast.expr) -> bool:
    """Arithmetic on a batch. `x.float()` of floats, and an index, are the same memory."""
    if isinstance(node, ast.BinOp):
        return any(
            isinstance(side, ast.Name | ast.Attribute | ast.Call) for side in (node.left, node.right)
        ) and not any(called_name(inner) in _NUMBERS for inner in ast.walk(node) if isinstance(inner, ast.Call))
    return is_call(node, "div", "mul", "sub", "add", "div_", "sub_")


_NUMBERS = {"len", "range", "time", "int"}


# What the collate functions of a project return, and whether a loader can pin it.

# Of these alone a class gets nothing that the loader walks through.
_PLAIN = {"object", "ABC", "Generic", "Protocol"}


def _batch_classes(loader: Loader, code: Code) -> list[Class]:
    given, function = loader_argument(loader, "collate_fn"), loader.function
    if given is None:
        return []
    if isinstance(given, ast.Lambda):
        made = code.project.class_of(given.body, function)
        return [made] if made is not None else []
    found = []
    for collate in resolve_collate(given, function, code.project):
        if collate.name == "__init__" and collate.owner is not None:
            found.append(collate.owner)
            continue
        # What it says that it returns, as `samples[0]` does not tell by itself.
        said = collate.node.returns if isinstance(collate.node, ast.FunctionDef) else None
        meant = code.project.lookup(said.id, collate) if isinstance(said, ast.Name) else None
        promised = meant if isinstance(meant, Class) else None
        returned = [value for value in collate.returned() if value is not None]
        classes = [code.project.class_of(value, collate) or promised for value in returned]
        # Where one way through it gives something else, that may be the usual one.
        found += [cls for cls in classes if cls is not None] if None not in classes else []
    return found


def _is_plain(cls: Class, code: Code, depth: int) -> bool:
    for name in cls.bases:
        meant = code.project.lookup(name.split(".")[-1], cls.module.body)
        if isinstance(meant, Class) and meant is not cls and depth < 5:
            if not _is_plain(meant, code, depth + 1):
                return False
        elif name.split(".")[-1] not in _PLAIN:
            return False
    # `Generic[T]` adds nothing; `dict[str, Tensor]` does.
    open_bases = [base for base in cls.node.bases if not isinstance(base, ast.Name | ast.Attribute)]
    return all(isinstance(base, ast.Subscript) and last_name(base.value) in _PLAIN for base in open_bases)
