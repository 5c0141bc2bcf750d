"""The verdict of a run for the terminal: what bounds it, where a step goes, and which lines to look at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from flatout.records.message import Message, message
from flatout.records.report import (
    PHASES,
    WORKING,
    Check,
    Finding,
    GpuUse,
    HostUse,
    KernelUse,
    Ladder,
    LineCost,
    PauseSite,
    PhaseShare,
    RunReport,
    StageCost,
    SyncSite,
    WorkerCost,
    WorkerLedger,
)
from flatout.report import text
from flatout.report.layout import (
    LABEL,
    PHASE_STYLE,
    Look,
    Page,
    draw_lines,
    separate_parts,
    wrap_command,
    wrap_paragraph,
    wrap_pieces,
)
from flatout.report.overview import (
    describe_warmup,
    kernel_kinds,
    ladder_rungs,
    next_command,
    remedy_outcome,
    spent_on,
    waits_for_batches,
)
from flatout.words import english

# A shorter one nobody has noticed.
_WARMUP_SHOWN_S = 1.0


def render(report: RunReport, look: Look | None = None, saved: str | None = None) -> str:
    """The whole verdict as text, ending in a newline. `saved` is where the run is stored."""
    look = look or Look()
    # Some signs take two characters in ASCII.
    page = Page(report, max(50, min(look.width, 120)) - (0 if look.unicode else 2), look.cwd, look.verbose)
    parts = [_headline(page)]
    if report.run.steps:
        parts += [_speed(page), _phases(page), stage_table(page), _devices(page), _findings(page), _lines(page)]
        parts += [_worker_lines(page), _syncs(page), _pauses(page)]
    parts += [_remedies(page), _footer(page, saved)]
    lines = separate_parts(list(part) for part in parts)
    return draw_lines(lines, page.width, look.color, look.unicode)


def _headline(page: Page) -> Iterator[Text]:
    report, run = page.report, page.report.run
    verdict = report.verdict
    head = Text(" flatout", "bold")
    facts = [f"{run.steps:,} steps"] if run.steps else []
    facts.append(text.duration(run.wall_s))
    if run.ranks > 1:
        facts.append(f"{run.ranks} ranks")
    if run.steps:
        facts.append("CPU" if run.device == "cpu" else text.clean(run.device))
    for fact in facts:
        head.append(" · ", "dim").append(fact, "dim")
    if run.exit_code:
        head.append(" · ", "dim").append(f"exit code {run.exit_code}", "red")
    yield from head.wrap(Console(width=page.width), page.width)
    yield Text()
    if not run.steps:
        yield Text(" No training step was seen.", "bold yellow")
        return
    machine = report.machine
    if machine is not None and machine.sentence is not None:
        yield from _said("disturbed" if machine.disturbed else "limited", "bold yellow", machine.sentence, page)
        yield Text()
    word = "balanced" if verdict.bound == "balanced" else f"{verdict.bound}-bound"
    if verdict.healthy:
        word = f"healthy, {word}"
    yield from _said(word, "bold green" if verdict.healthy else "bold red", verdict.sentence, page)


def _said(word: str, style: str, words: Message, page: Page) -> Iterator[Text]:
    sentence = Text.assemble((word.upper(), style), "  ", (text.clean(english(words)), "bold"))
    for line in sentence.wrap(Console(width=page.width), page.width - 2):
        line.rstrip()
        yield Text(" ") + line


def _speed(page: Page) -> Iterator[Text]:
    rates = page.report.throughput
    if rates.steps_per_s is None:
        yield from wrap_pieces("Speed", [Text("not measured: too few steps", "dim")], page)
        return
    pieces = []
    if rates.samples_per_s is None:
        pieces.append(Text("samples/s not measured", "dim"))
    else:
        pieces.append(Text(f"{text.figure(rates.samples_per_s)} samples/s", "bold"))
    pieces.append(Text(f"{text.figure(rates.steps_per_s)} it/s"))
    step_ms = sum(phase.ms for phase in page.report.phases.values())
    if step_ms:
        pieces.append(Text(f"{text.milliseconds(step_ms)} per step"))
    yield from wrap_pieces("Speed", pieces, page)
    warmup = page.report.warmup
    if warmup is not None and warmup.steps and (page.verbose or warmup.seconds >= _WARMUP_SHOWN_S):
        yield from wrap_pieces("Warm-up", [Text(english(describe_warmup(warmup)), "dim")], page)


def _phases(page: Page) -> Iterator[Text]:
    known = [(name, page.report.phases[name]) for name in PHASES if name in page.report.phases]
    shown = [(n, p) for n, p in known if page.verbose or p.share >= 0.01]
    small = [n for n, p in known if not page.verbose and 0 < p.share < 0.01]
    if not shown:
        return
    yield Text(" Where the step time goes", "bold")
    for name, phase in shown:
        yield _phase_bar(name, phase, page)
    if small:
        words = f"{len(small)} more below 1%: {', '.join(small)}"
        yield from wrap_paragraph("", words, page, "dim")
    parts = [Text.assemble(f"{english(part)} ", (text.percent(share), "bold")) for part, share in spent_on(page.report)]
    if parts:
        yield from wrap_pieces("Spent on", parts, page)


def _phase_bar(name: str, phase: PhaseShare, page: Page) -> Text:
    cells = page.width - LABEL - 2 - 17
    filled = text.bar(phase.share, cells)
    line = Text.assemble(" ", (name.ljust(LABEL), ""), " ", (filled.ljust(cells), PHASE_STYLE[name]))
    line.append(text.percent(phase.share).rjust(5), "bold")
    return line.append(text.milliseconds(phase.ms).rjust(12), "dim")


def _devices(page: Page) -> Iterator[Text]:
    report = page.report
    without = Text("not used" if report.run.device == "cpu" else "not measured", "dim")
    yield from wrap_pieces(
        "GPU", [without] if report.gpu is None else list(_gpu(report, report.gpu, page.verbose)), page
    )
    if report.gpu is not None and report.gpu.kernels is not None:
        pieces = _kernels(report.gpu.kernels, report.gpu.busy_share, page.verbose)
        yield from wrap_pieces("Kernels", list(pieces), page)
    if report.gpu is not None and report.gpu.ladder is not None:
        yield from wrap_pieces("Peak", list(_peak(report.gpu.ladder)), page)
        yield from wrap_pieces("Ladder", list(_rungs(report.gpu.ladder)), page)
    if report.host is not None:
        yield from wrap_pieces("Host", list(_host(report.host)), page)
    for worker in sorted(report.workers, key=lambda w: -w.samples)[: None if page.verbose else 2]:
        yield from wrap_pieces("Loader", list(_loader(worker)), page)
    ledger = report.worker_ledger
    if ledger is not None and (report.verdict.bound == "input" or page.verbose):
        yield from wrap_pieces("Workers", list(_worker_parts(ledger)), page)


def _host(host: HostUse) -> Iterator[Text]:
    cores = None if host.cpu_cores is None else f"{host.cpu_cores:.1f}"
    if cores is not None:
        yield Text("1 core busy" if cores == "1.0" else f"{cores} cores busy")
    if host.memory_peak is not None:
        yield _measured("memory peak", text.gibibytes(host.memory_peak))


def _gpu(report: RunReport, gpu: GpuUse, verbose: bool) -> Iterator[Text]:
    if gpu.starved_share is not None or waits_for_batches(report):
        yield _measured("starved", None if gpu.starved_share is None else text.percent(gpu.starved_share))
    busy = None if gpu.util_mean is None else f"{gpu.util_mean:.0f}%"
    if busy and gpu.util_spread is not None:
        busy += f" ± {gpu.util_spread:.0f}"
    yield _measured("util", busy)
    yield _measured("power", None if gpu.power_share is None else text.percent(gpu.power_share))
    if gpu.sm_active is not None or gpu.tensor_active is not None or verbose:
        yield _measured("SM", None if gpu.sm_active is None else text.percent(gpu.sm_active))
        yield _measured("tensor cores", None if gpu.tensor_active is None else text.percent(gpu.tensor_active))
    yield _measured("memory peak", None if gpu.memory_peak is None else text.gibibytes(gpu.memory_peak))
    if gpu.drained_share is not None and gpu.drained_share >= 0.2:
        yield Text(f"idle at {text.percent(gpu.drained_share)} of launches")


def _kernels(kernels: KernelUse, busy_share: float | None, verbose: bool) -> Iterator[Text]:
    """The busy time, then the shares of the kernels' time: as some overlap, they may be more than the busy time."""
    busy = Text.assemble("busy ", (text.milliseconds(kernels.busy_ms), "bold"), " per step")
    yield busy if busy_share is None else busy.append(f" ({text.percent(busy_share)})")
    if verbose:
        yield Text.assemble((f"{kernels.count:,.0f}", "bold"), " kernels")
    for kind, share in kernel_kinds(kernels, all_of_them=verbose):
        yield Text.assemble(f"{english(kind)} ", (text.percent(share), "bold"))


def _peak(ladder: Ladder) -> Iterator[Text]:
    """What the device reaches, and of which peak."""
    peak = message("peak.sheet" if ladder.peak_source == "data sheet" else "peak.measured")
    yield Text.assemble("MFU ", (text.percent(ladder.mfu), "bold"), f" in {ladder.precision} {english(peak)}")
    yield Text.assemble((f"{ladder.tflops_per_s:,.3g}", "bold"), " TFLOP/s")
    yield Text.assemble((f"{ladder.gb_per_s:,.0f}", "bold"), " GB/s asked for")


def _rungs(ladder: Ladder) -> Iterator[Text]:
    for name, ms in ladder_rungs(ladder):
        yield Text.assemble(f"{english(name)} ", (text.milliseconds(ms), "bold"))


def _measured(name: str, value: str | None) -> Text:
    if value is None:
        return Text(f"{name} not measured", "dim")
    return Text.assemble(f"{name} ", (value, "bold"))


def _loader(cost: WorkerCost) -> Iterator[Text]:
    if cost.workers == 0:
        yield Text("in the main process")
    else:
        yield Text("1 worker" if cost.workers == 1 else f"{cost.workers} workers", "bold")
    fetch, collate = text.milliseconds(cost.fetch_ms_per_sample), text.milliseconds(cost.collate_ms_per_sample)
    yield Text(f"per sample: {fetch} fetch + {collate} collate")
    if cost.busy_share is not None:
        yield Text(f"busy {text.percent(cost.busy_share)}")
    if cost.queue_depth is not None:
        yield Text(f"{cost.queue_depth:.1f} batches ready")
    if cost.startup_s is not None and cost.startup_s >= 0.5:
        yield Text(f"start-up {text.duration(cost.startup_s)}")


_WORKER_PART_NAMES = {
    "samples": "making samples",
    "collate": "collating",
    "handover": "handing over",
    "order": "idle",
    "room": "waiting for room",
    "not running": "no processor free",
    "python": "Python",
    "native": "native code",
    "file": "waiting for files",
    "pipe": "waiting for pipes or sockets",
    "lock": "waiting for threads",
    "process": "waiting for processes",
    "sleep": "sleeping",
}


def _worker_parts(ledger: WorkerLedger) -> Iterator[Text]:
    """Shares of a worker's time that add up to all of it: at work by nature, where that is known."""
    natures = {name: share * ledger.working for name, share in ledger.natures.items()}
    others = {name: share for name, share in ledger.parts.items() if not natures or name not in WORKING}
    for name, share in (natures | others).items():
        if share >= 0.01:
            yield Text.assemble(f"{_WORKER_PART_NAMES.get(name, name)} ", (text.percent(share), "bold"))


def _findings(page: Page) -> Iterator[Text]:
    if page.report.findings:
        yield Text(" What to fix", "bold")
    for finding in page.report.findings[: None if page.verbose else 3]:
        yield from _finding(finding, page)
    yield from _source(page)


def _source(page: Page) -> Iterator[Text]:
    side = page.report.source
    if side is None or not side.not_measured:
        return
    count = len(side.not_measured)
    things = f"{count}{' more' if page.report.findings else ''} thing{'' if count == 1 else 's'}"
    words = f"{things} in the source not measured by this run: flatout check {side.path}"
    yield from wrap_paragraph("", words, page, "dim")
    for thing in side.not_measured if page.verbose else ():
        where = text.place(thing.location.file, thing.location.line, page.width // 2, page.cwd)
        yield from wrap_paragraph(thing.code, f"{thing.title}, {where}", page, "dim", label_style="cyan")


def _finding(finding: Finding, page: Page) -> Iterator[Text]:
    gain = finding.predicted_gain
    words = finding.title
    if finding.location is not None:
        words += f", {text.place(finding.location.file, finding.location.line, page.width // 2, page.cwd)}"
    if gain is not None:
        words += f" · ×{gain.low:.2f} to ×{gain.high:.2f}"
    yield from wrap_paragraph(finding.code, words, page, label_style="bold cyan")
    if finding.change is not None:
        yield from wrap_paragraph("", f"→ {english(finding.change)}", page, "dim")
    for other in finding.related:
        where = text.place(other.location.file, other.location.line, page.width // 2, page.cwd)
        yield from wrap_paragraph("", f"{where}: {english(other.words)}", page, "dim")
    # One that may change results is for those who ask for more.
    if finding.fix is not None and (page.verbose or "--unsafe-fixes" not in finding.fix):
        yield from wrap_command("", f"or: {finding.fix}", page, "dim")
    if page.verbose:
        yield from wrap_paragraph("", finding.cause, page, "dim")


def _lines(page: Page) -> Iterator[Text]:
    costs = [c for c in page.report.lines if page.verbose or c.share >= 0.01][: 20 if page.verbose else 5]
    yield from _sites("Slowest lines of your code", _costs(costs), page)


def _worker_lines(page: Page) -> Iterator[Text]:
    """Where the training waits for its batches, or all of it is asked for."""
    if page.report.verdict.bound == "input" or page.verbose:
        costs = [c for c in page.report.worker_lines if page.verbose or c.share >= 0.05][: 20 if page.verbose else 3]
        yield from _sites("Slowest lines in a loader worker, per sample", _costs(costs), page)


def _costs(costs: Sequence[LineCost]) -> list[_Site]:
    return [(cost.phase, cost, (text.percent(cost.share), text.milliseconds(cost.ms))) for cost in costs]


def _syncs(page: Page) -> Iterator[Text]:
    sites: list[_Site] = []
    for site in page.report.syncs[: 20 if page.verbose else 3]:
        often = text.figure(site.per_step) if site.per_step < 10 else f"{site.per_step:.0f}"
        sites.append(
            (site.op, site, (f"{often} per step", "hidden" if site.ms is None else text.milliseconds(site.ms)))
        )
    yield from _sites("GPU syncs: the host waits for the device", sites, page)


def _pauses(page: Page) -> Iterator[Text]:
    wall_s = page.report.run.wall_s
    shown = [p for p in page.report.pauses if page.verbose or p.total_s >= 0.01 * wall_s][: 20 if page.verbose else 3]
    sites: list[_Site] = [(p.op, p, (f"{p.count:,} times", text.duration(p.total_s))) for p in shown]
    yield from _sites("Training pauses", sites, page)


# Its kind, the place, and two figures.
_Site = tuple[str, LineCost | SyncSite | PauseSite, tuple[str, str]]


def _sites(title: str, sites: Sequence[_Site], page: Page) -> Iterator[Text]:
    """kind · file:line · function … figure · figure; the function gives way when the line is short."""
    if sites:
        yield Text(f" {title}", "bold")
    for kind, site, values in sites:
        where = text.place(site.location.file, site.location.line, page.width * 9 // 20, page.cwd)
        first, second = values[0].rjust(5), values[1].rjust(12)
        spare = page.width - LABEL - 2 - len(first) - len(second) - len(where) - 3
        left = Text.assemble(" ", (kind.ljust(LABEL), PHASE_STYLE.get(kind, "red")), " ", (where, "cyan"))
        if spare >= 6:
            left.append("  " + text.shorten(site.function, spare), "dim")
        left.append(" " * max(1, page.width - left.cell_len - len(first) - len(second)))
        yield left.append(first, "bold").append(second, "dim")


def _notices(page: Page) -> tuple[Message, ...]:
    """Where the run made no use of a GPU, nobody misses its figures."""
    notices = page.report.notices
    if page.verbose:
        return notices
    if page.report.run.device == "cpu":
        notices = tuple(notice for notice in notices if notice.id != "nvml.absent")
    return notices[:6]


def _footer(page: Page, saved: str | None) -> Iterator[Text]:
    report = page.report
    if report.run.steps and report.overhead.us_per_step is not None:
        pieces = [Text(f"{text.figure(report.overhead.us_per_step)} µs per step")]
        if report.overhead.share is not None:
            share = report.overhead.share
            pieces.append(Text(f"{share:.1%} of the step" if share >= 0.0005 else "<0.1% of the step"))
        yield from wrap_pieces("Overhead", pieces, page)
    for notice in _notices(page):
        yield from wrap_paragraph("Note", notice, page, label_style="bold yellow")
    yield from wrap_command("Next", next_command(report), page, "cyan")
    if saved is not None:
        pieces = [Text(text.clean(saved), "dim"), Text("`flatout runs` lists all runs", "dim")]
        yield from wrap_pieces("Saved", pieces, page)


_MARKS = {"met": "✓", "missed": "✗", "not measured": "·"}
_PLAIN_MARKS = {"met": "x", "missed": "-", "not measured": "?"}


def render_checklist(checks: Sequence[Check], unicode: bool = True) -> str:
    """Grouped lines, each with its mark and its figure, ending in a newline."""
    marks = _MARKS if unicode else _PLAIN_MARKS
    width = max(len(english(check.asked)) for check in checks)
    lines: list[str] = []
    group = ""
    for check in checks:
        if check.group != group:
            group = check.group
            lines += ["", f" {group[0].upper()}{group[1:]}"]
        figure = english(check.figure) if unicode else text.ascii_only(english(check.figure))
        lines.append(f"   {marks[check.state]} {english(check.asked).ljust(width)}  {figure}".rstrip())
    return "\n".join(lines[1:]) + "\n"


_REMEDY_STYLE = {"applied": "green", "reverted": "yellow"}


def _remedies(page: Page) -> Iterator[Text]:
    remedies = page.report.remedies
    if not remedies:
        return
    yield Text(" Remedies in this run", "bold")
    for remedy in remedies:
        yield from wrap_paragraph(
            remedy.safety, remedy_outcome(remedy), page, _REMEDY_STYLE.get(remedy.state, "yellow")
        )


# The table of the model's stages.

# The last columns give way on a narrow terminal, parameters first.
_COLUMNS = (("params", 8), ("forward", 10), ("backward", 10), ("share", 6), ("if 2×", 8), ("if free", 8))
_ENOUGH_FOR_NAME = 16
_FIRST_TO_GO = ("params", "if 2×", "if free")


def stage_table(page: Page) -> Iterator[Text]:
    costs = page.report.stages
    if not costs:
        return
    columns = _stage_columns(page.width)
    room = page.width - 1 - sum(cells for _, cells in columns)
    head = Text(f" {'Stages of your model'[:room]:<{room}}", "bold")
    for name, cells in columns:
        head.append(name.rjust(cells), "dim")
    yield head
    for cost in costs:
        yield _stage_line(cost.name, _stage_figures(cost), columns, room, "cyan")
    rest = 1 - sum(cost.share or 0.0 for cost in costs)
    if rest > 0.005 and any(cost.share is not None for cost in costs):
        yield _stage_line("the rest of the step", {"share": text.percent(rest)}, columns, room, "dim")
    if columns[-1][0] == "if free":
        yield from wrap_paragraph(
            "", "if 2×, if free: the most the step can gain by making the stage twice as fast, or free", page, "dim"
        )


def _stage_columns(width: int) -> list[tuple[str, int]]:
    columns = list(_COLUMNS)
    for name in _FIRST_TO_GO:
        if width - sum(cells for _, cells in columns) < _ENOUGH_FOR_NAME + 1:
            columns = [column for column in columns if column[0] != name]
    return columns


def _stage_figures(cost: StageCost) -> dict[str, str]:
    return {
        "params": _stage_count(cost.parameters),
        "forward": text.milliseconds(cost.forward_ms),
        "backward": text.told(cost.backward_ms, text.milliseconds),
        "share": text.told(cost.share, text.percent),
        "if 2×": text.told(cost.if_twice, text.ratio),
        "if free": text.told(cost.if_free, text.ratio),
    }


def _stage_line(name: str, figures: dict[str, str], columns: list[tuple[str, int]], room: int, style: str) -> Text:
    line = Text.assemble(" ", (text.shorten(name, room - 1).ljust(room), style))
    for column, cells in columns:
        line.append(figures.get(column, "").rjust(cells), "bold" if column == "share" else "")
    return line


def _stage_count(parameters: int) -> str:
    """Parameters of a stage: 640 · 12.3 k · 4.56 M · 1.20 G."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if parameters >= size:
            return f"{text.figure(parameters / size)} {unit}"
    return str(parameters)
