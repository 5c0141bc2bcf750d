"""Workers that live on where the script's would start anew: what starting draws is drawn, what it would see is seen.

A new epoch draws one number from the loader's generator for its workers; workers that are kept do not. That draw is
made all the same. And workers that are started see the dataset as it is then: where the script has changed it since,
new ones are started.
"""

from __future__ import annotations

from typing import Any

from ..site import Site
from .changed import fingerprint

# On a loader: which remedy keeps its workers, and what its dataset was like when they were started.
_KEPT_BY = "_flatout_kept_by"
_SEEN = "_flatout_dataset_seen"


def keep(arguments: dict[str, Any], remedy: str) -> bool:
    """Have the loader that is just being made keep its workers; False where it does so by itself."""
    if arguments.get("persistent_workers") or not arguments["num_workers"]:
        return False
    arguments["persistent_workers"] = True
    vars(arguments["self"])[_KEPT_BY] = remedy
    return True


def are_kept(loader: Any) -> bool:
    """Not by the script's own wish."""
    return _KEPT_BY in vars(loader)


def draw_as_before(site: Site, module: Any, remedy: str) -> None:
    """Of torch's own iterators, for the loaders whose workers this remedy keeps."""
    torch = site.torch

    def make(original: Any) -> Any:
        def _reset(iterator: Any, loader: Any, first_iter: bool = False) -> None:
            if not first_iter and site.in_force and vars(loader).get(_KEPT_BY) == remedy:
                torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
            original(iterator, loader, first_iter)

        return _reset

    site.replace(module._MultiProcessingDataLoaderIter, "_reset", make)


def renew_if_changed(loader: Any) -> None:
    """When an epoch begins: let the workers go if they have not seen the dataset as it is now."""
    if not are_kept(loader):
        return
    seen, vars(loader)[_SEEN] = vars(loader).get(_SEEN), fingerprint(loader.dataset)
    if seen is not None and seen != vars(loader)[_SEEN]:
        loader._iterator = None
