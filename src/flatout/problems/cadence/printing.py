"""Which output is a progress display, and which a log: told by the text of the line. Shared by their problems."""

from __future__ import annotations

import re

from flatout.records.evidence import Evidence
from flatout.records.report import Location, PauseSite

_PROGRESS = re.compile(
    r"tqdm|trange|pbar|prog(ress)?_?bar|\bbar\.|set_postfix|set_description|\.refresh\(", re.IGNORECASE
)
_PRINTS = re.compile(r"^(print|tqdm\.write|sys\.std(out|err)\.(write|flush))\(")
_CALL = re.compile(r"([A-Za-z_][A-Za-z_0-9.]*)\(")
# What a printed line may call without the call being what takes the time.
_CHEAP = {"print", "write", "flush", "format", "len", "round", "int", "float", "str", "repr", "item", "time", "join",
          "perf_counter", "get_last_lr", "strftime", "rjust", "ljust", "center", "now"}  # fmt: skip
_IMAGES = re.compile(
    r"add_(image|images|figure|video|image_with_boxes|histogram)|savefig|imwrite|imsave|save_image|\.save\("
)


def is_progress(run: Evidence, site: PauseSite) -> bool:
    return bool(_PROGRESS.search(run.text_at(site.location)))


def is_image(run: Evidence, site: PauseSite) -> bool:
    return bool(_IMAGES.search(run.text_at(site.location)))


def printed_ms(run: Evidence) -> dict[Location, float]:
    """Milliseconds a step under lines that do nothing but print."""
    found: dict[Location, float] = {}
    for line in run.all_lines:
        text = run.text_at(line.location)
        if line.phase in ("other", "forward") and _PRINTS.match(text) and _only_prints(text):
            found[line.location] = found.get(line.location, 0.0) + line.ms
    return found


def _only_prints(text: str) -> bool:
    return all(name.rsplit(".", 1)[-1] in _CHEAP for name in _CALL.findall(text))


def logged_ms(run: Evidence, sites: list[PauseSite], phase_ms: float) -> float:
    """What these sites took of the steps' logging; totals of sites are of the whole run, so only their part counts."""
    total_s = sum(site.total_s for site in run.report.pauses if site.op == "logging")
    return phase_ms * sum(site.total_s for site in sites) / total_s if total_s > 0 else 0.0
