"""Hooks around every optimizer's step, of one remedy."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from ..records.message import message
from .site import Site
from .user_code import is_called_within

# torch.optim hides the module of this name behind its own namespace.
_MODULE = "torch.optim.optimizer"

Hook = Callable[[Any, Any, Any], None]


def hook_steps(site: Site, before: Hook, after: Hook | None = None) -> None:
    """Call `before(optimizer, args, kwargs)`, ahead of others' hooks, so that they see what it has changed."""
    module: Any = sys.modules[_MODULE]
    compiling = site.torch.compiler.is_dynamo_compiling

    def guarded(hook: Hook) -> Callable[[Any, Any, Any], None]:
        def run(optimizer: Any, args: Any, kwargs: Any) -> None:
            if not compiling() and site.in_force:
                site.guarded(lambda: hook(optimizer, args, kwargs))

        return run

    handle = module.register_optimizer_step_pre_hook(guarded(before))
    _undo_later(site, handle)
    # Others' hooks describe the optimizer as it is; torch calls them in this order.
    hooks = getattr(module, "_global_optimizer_pre_hooks", None)
    if hooks is not None and handle.id in hooks:
        hooks.move_to_end(handle.id, last=False)
    if after is not None:
        _undo_later(site, module.register_optimizer_step_post_hook(guarded(after)))


def parameters_of(optimizer: Any) -> list[Any]:
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def _undo_later(site: Site, handle: Any) -> None:
    """Torch goes over its hooks while they run, so none may go just then: one that has to wait does nothing."""

    def undo() -> None:
        if is_called_within(_MODULE):
            site.undo(undo)
        else:
            handle.remove()

    site.undo(undo)


# A script's own settings: its explicit choice takes precedence over a numeric remedy.


class _Watched:
    """Stands for a descriptor of a settings module and tells of every value that is set."""

    def __init__(self, original: Any, told: Callable[[Any], None]) -> None:
        self._original = original
        self._told = told

    def __get__(self, holder: Any, kind: Any) -> Any:
        return self._original.__get__(holder, kind)

    def __set__(self, holder: Any, value: Any) -> None:
        self._told(value)
        self._original.__set__(holder, value)


def when_set(site: Site, holder: Any, name: str, told: Callable[[Any], None]) -> None:
    """Call `told(value)` before `holder.name = value`. `holder` is a settings module such as torch.backends.cudnn."""
    kind = type(holder)
    original = kind.__dict__.get(name)
    if original is None or not hasattr(original, "__set__"):
        return
    watched = _Watched(original, told)
    setattr(kind, name, watched)

    def undo() -> None:
        if kind.__dict__.get(name) is watched:
            setattr(kind, name, original)

    site.undo(undo)


def when_attribute_set(site: Site, kind: type, names: tuple[str, ...], told: Callable[[Any], None]) -> None:
    """The same for a class whose `__setattr__` does the setting."""
    site.before(kind, "__setattr__", lambda holder, name, value: told(value) if name in names else None)


def when_called(site: Site, owner: Any, name: str, told: Callable[[Any], None]) -> None:
    """Call `told(first argument)` before `owner.name(…)`."""
    site.before(owner, name, lambda *args, **kwargs: told(next(iter((*args, *kwargs.values())), None)))


def refuse_when_set(site: Site) -> Callable[[Any], None]:
    """For the above: the script's own value is the one that holds."""
    return lambda value: site.refuse(message("remedy.script_sets", value=value))


# A script's own CUDA streams. With these, an implicit order between host and device may matter: a blocking call
# orders work on all streams, a queue only its own.

_OURS = ("flatout", "_flatout", "_flatout_attach")


def when_stream_entered(site: Site, call: Callable[[], object]) -> None:
    def look(*args: Any, **kwargs: Any) -> None:
        if is_called_by_script(sys._getframe(1)):
            call()

    cuda = site.torch.cuda
    site.before(cuda.StreamContext, "__enter__", look)
    site.before(cuda, "set_stream", look)


def is_called_by_script(frame: FrameType | None) -> bool:
    """Whether the script made this call, or a library it uses: what torch and we do by ourselves keeps its own order.

    Patches may be wrapped around each other: a frame of theirs says nothing, the one that called them does.
    """
    while frame is not None:
        root, _, rest = str(frame.f_globals.get("__name__", "")).partition(".")
        if root not in _OURS:
            return root != "torch"
        if rest.startswith("feed") or rest.endswith("sync.defer"):
            return False
        frame = frame.f_back
    return False


# Whether there is a GPU. Asked of NVML alone: torch.cuda.is_available() would start the driver in this process, and
# children forked from it could then not use the GPU.


def has_gpu(torch: Any) -> bool:
    """False only where it is certain that none can be used."""
    if torch.version.cuda is None:
        return False
    try:
        return bool(torch.cuda._device_count_nvml() != 0)
    except Exception:
        return True
