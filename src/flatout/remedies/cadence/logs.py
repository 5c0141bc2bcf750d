"""Pictures, figures, histograms, videos and sounds go to TensorBoard every k-th time only, each by its tag.

Of the training class, though it touches no weight: what is not written is not there afterwards. The first of a tag is
written, and then every k-th; a figure that is not written is closed, as writing closes it. Scalars and text are always
written. What the script does to make a picture it still does: where that is the larger part, `cadence.throttle` on the
function that makes it spares both.
"""

from __future__ import annotations

import sys
import weakref
from functools import partial
from typing import Any

from ...records.message import message
from ..answers import by_finding
from ..site import Site
from ..traits import Bottleneck, Pauses, Traits
from ..values import Count

ID = "cadence.logging"
TITLE = "Pictures and histograms are logged every k-th time only"
SAFETY = "training"
TRAITS = Traits(Bottleneck.PAUSES, pauses=Pauses.AT_EVENTS)
VALUE = Count(2, 100_000)
_CALLS = (
    "add_image", "add_images", "add_image_with_boxes", "add_figure", "add_histogram", "add_video", "add_audio",
    "add_embedding", "add_pr_curve", "add_mesh",
)  # fmt: skip
_WRITERS = ("torch.utils.tensorboard.writer", "tensorboardX.writer")
_USUAL = 10

applies = by_finding(ID, message("cadence_logging.short"), "interval_times", _USUAL)


def apply(site: Site, value: Any) -> None:
    site.tell(every=value)
    for module in _WRITERS:
        site.after_import(module, partial(_watch, site, int(value)))


def _watch(site: Site, every: int, module: Any) -> None:
    counts: weakref.WeakKeyDictionary[Any, dict[tuple[str, str], int]] = weakref.WeakKeyDictionary()

    def log(name: str, original: Any, writer: Any, *args: Any, **kwargs: Any) -> Any:
        tag = str(kwargs.get("tag", args[0] if args and isinstance(args[0], str) else ""))
        of_writer = counts.setdefault(writer, {})
        count = of_writer[name, tag] = of_writer.get((name, tag), -1) + 1
        if count % every == 0:
            return original(writer, *args, **kwargs)
        if name == "add_figure":
            _close(*args, **kwargs)
        return None

    for name in _CALLS:
        site.around(module.SummaryWriter, name, partial(log, name))


def _close(tag: Any = None, figure: Any = None, global_step: Any = None, close: bool = True, **_: Any) -> None:
    pyplot: Any = sys.modules.get("matplotlib.pyplot")
    if close and pyplot is not None:
        for item in figure if isinstance(figure, list) else [figure]:
            pyplot.close(item)
