"""The host reads a result from the GPU in every step, which is a sync.

What it is: `.item()`, `.cpu()`, `.tolist()`, `float(loss)` or `if tensor:` on a GPU tensor in the training step.

Why the GPU idles: the call returns only when the GPU has finished all queued work. The host then starts the next step
with an empty queue, and the GPU waits for the first launches.

How it shows in a run: time in `sync` at these lines, and a GPU whose queue is found empty.

How it shows in source: `.item()`, `.cpu()`, `.tolist()`, `float(…)`, a comparison, or printing, of a tensor that the
model made, in code that every step runs; not behind `if step % k == 0`, in evaluation, or after the loop.

The fix: keep results on the GPU and read them rarely. Before: `total += loss.item()`; after: `total += loss.detach()`,
and `total.item()` every 100 steps. For logging, `.to("cpu", non_blocking=True)` and read a step later.

What to expect: host and GPU overlap again; the step takes as long as the slower of the two. All syncs of a step have
to go: the next one waits for what the removed one would have waited for.

When it is fine: the GPU is busy all the time anyway, or it happens once in many steps.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from flatout.problems.cases import HERE, Case, SourceCase, cases_in, on_gpu, run
from flatout.problems.found import FoundInRun, FoundInSource, step_of
from flatout.problems.sync.waits import RESULTS, is_per_parameter, report_waits, sites_of, timed_ms
from flatout.records.evidence import Evidence
from flatout.records.message import message
from flatout.records.report import Location, SyncSite
from flatout.records.source import Edit, Fix
from flatout.source.code import Code, call_path
from flatout.source.syntax.edits import replace_node, source_text
from flatout.source.syntax.module import Function
from flatout.source.syntax.nodes import called_name, short_text, walk_scope
from flatout.source.training.syncs import Sync

CODE = "SY301"
REMEDY = "sync.defer"


def in_run(run: Evidence) -> Iterator[FoundInRun]:
    if not run.on_gpu:
        return
    sites = [site for site in sites_of(run, RESULTS) if not is_per_parameter(run, site)]
    wait_ms = timed_ms(run, sites)
    evidence: dict[str, float | int | str] = {
        "syncs_per_step": round(sum(site.per_step for site in sites), 2),
        "sync_ms_per_step": round(wait_ms, 2),
        "drained_share": round(run.drained_share or 0.0, 3),
    }
    yield from report_waits(run, "sy301", sites, wait_ms, evidence)


def _site(op: str, ms: float, per_step: float = 1.0, line: int = 10, function: str = "train") -> SyncSite:
    return SyncSite(Location(HERE.file, line), function, op, per_step, ms)


_DRY = on_gpu(util_mean=55.0, drained_share=0.6)
_MS = {"data": 1.0, "forward": 35.0, "backward": 25.0, "optimizer": 9.0, "sync": 29.0, "other": 1.0}
CASES = (
    Case(
        "finds it when the loss is read each step and the device then runs dry",
        run(gpu=_DRY, ms=_MS, syncs=(_site("item", 27.0), _site("item", 2.0, 5.0, line=12))),
        found=True,
    ),
    Case(
        "quiet when the device is busy all the same",
        run(gpu=on_gpu(drained_share=0.0), ms=_MS, syncs=(_site("item", 29.0),)),
        found=False,
    ),
    Case(
        "quiet when it is read once in a hundred steps",
        run(gpu=_DRY, ms={**_MS, "sync": 0.4, "forward": 63.6}, syncs=(_site("item", 0.4, 0.01),)),
        found=False,
    ),
    Case(
        "quiet when the evaluation does it",
        run(gpu=_DRY, ms={**_MS, "sync": 0.0, "eval": 29.0}, syncs=(_site("cpu", 29.0, 2.0, function="evaluate"),)),
        found=False,
    ),
    Case(
        "quiet on a CPU, where there is no device to wait for", run(ms=_MS, syncs=(_site("item", 29.0),)), found=False
    ),
)


# By the operation that waits; the words of cause and change have these names.
_KINDS = {"print": "written", "format": "written", "bool": "compared", "cpu": "copied"}


# Sums of results that can stay on the GPU until they are read: `total += loss.item()` in a loop.

_COUNTS = {"eq", "ne", "gt", "lt", "ge", "le", "isclose", "logical_and", "logical_or"}


def defer_read(sync: Sync, code: Code) -> tuple[Edit, ...] | None:
    """The read taken out of the sum, and put where the sum is read: only where all of its uses can be seen.

    Numbers and tensors both can be made a number again, so it holds for a loop without a single iteration as well.
    """
    function, module = sync.region.function, sync.region.module
    statement = next((point.statement for point in sync.region.main_path() if point.node is sync.node), None)
    if not isinstance(statement, ast.AugAssign) or not isinstance(statement.op, ast.Add) or not _is_plain(sync, code):
        return None
    target, kind = statement.target, _kind(sync, statement.value)
    if not isinstance(target, ast.Name) or kind is None or not _begins_with(target.id, kind, function):
        return None
    reads = _find_reads(target.id, function)
    each_step = {id(point.node) for point in sync.region.main_path()}
    if reads is None or any(id(read) in each_step for read, _ in reads):
        return None
    edits = [replace_node(module, sync.node, _detach(sync))]
    for name, above in reads:
        if isinstance(above, ast.Call) and called_name(above) == kind and above.args == [name]:
            continue
        if source_text(module, name) != name.id or _is_labelled(name, above, sync):
            return None
        edits.append(replace_node(module, name, f"{kind}({name.id})"))
    return tuple(edits)


def _is_plain(sync: Sync, code: Code) -> bool:
    on_device = code.tensors.of(sync.region).is_on_device(sync.of)
    return on_device and sync.op in ("item", "float", "int") and isinstance(sync.of, ast.expr)


def _kind(sync: Sync, value: ast.expr) -> str | None:
    """What the sum is a sum of: floats, or counts, which stay whole only if nothing is multiplied."""
    if _is_count(sync.of):
        return "int" if value is sync.node and sync.op != "float" else None
    if sync.op == "int":
        return None
    weighted = isinstance(value, ast.BinOp) and (
        (isinstance(value.op, ast.Mult | ast.Div) and value.left is sync.node)
        or (isinstance(value.op, ast.Mult) and value.right is sync.node)
    )
    return "float" if value is sync.node or weighted else None


def _is_count(node: ast.expr) -> bool:
    """`(predicted == labels).sum()`."""
    return any(
        isinstance(inner, ast.Compare) or (isinstance(inner, ast.Call) and called_name(inner) in _COUNTS)
        for inner in ast.walk(node)
    )


def _begins_with(name: str, kind: str, function: Function) -> bool:
    """Is it only ever set to a number that a sum of that kind begins with?"""
    values = function.bindings.get(name, [])
    numbers = [value.value for value in values if isinstance(value, ast.Constant) and type(value.value) in (int, float)]
    if not values or len(numbers) != len(values):
        return False
    # `total = 0` may be a sum of losses; what begins with 0.0 is no count.
    return kind == "float" or all(isinstance(value, int) for value in numbers)


def _find_reads(name: str, function: Function) -> list[tuple[ast.Name, ast.AST]] | None:
    """All reads of a name in its function, each with what it is part of. None where others may use it, too."""
    found: list[tuple[ast.Name, ast.AST]] = []
    for node, above in _with_parents(function.node):
        if isinstance(node, ast.Global | ast.Nonlocal) and name in node.names:
            return None
        if not isinstance(node, ast.Name) or node.id != name:
            continue
        if isinstance(node.ctx, ast.Del) or isinstance(above, ast.For | ast.comprehension | ast.NamedExpr):
            return None
        if isinstance(node.ctx, ast.Load):
            found.append((node, above))
    own = {id(node) for statement in function.node.body for node in walk_scope(statement)}
    if any(id(node) not in own for node, _ in found):
        return None  # a function inside has it as well
    others = (
        [other for other in function.module.functions if other is not function] if function.definition is None else []
    )
    if any(name == node.id for other in others for node in ast.walk(other.node) if isinstance(node, ast.Name)):
        return None
    return found


def _with_parents(top: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    stack = [top]
    while stack:
        above = stack.pop()
        for node in ast.iter_child_nodes(above):
            yield node, above
            stack.append(node)


def _is_labelled(name: ast.Name, above: ast.AST, sync: Sync) -> bool:
    """`f"{total=}"` shows the text of what it prints."""
    line = sync.region.module.lines[(name.end_lineno or name.lineno) - 1].encode()
    return isinstance(above, ast.FormattedValue) and line[name.end_col_offset or 0 :].lstrip().startswith(b"=")


def _detach(sync: Sync) -> str:
    of, text = sync.of, source_text(sync.region.module, sync.of)
    if (isinstance(of, ast.Call) and called_name(of) == "detach") or (
        isinstance(of, ast.Attribute) and of.attr == "data"
    ):
        return text
    return (
        f"{text}.detach()"
        if isinstance(of, ast.Name | ast.Attribute | ast.Call | ast.Subscript)
        else f"({text}).detach()"
    )


def in_source(code: Code) -> Iterator[FoundInSource]:
    for sync in code.syncs:
        if sync.over_parameters:
            continue  # reported as SY304
        kind = _KINDS.get(sync.op, "read")
        yield FoundInSource(
            place=sync.region.module.place(sync.node),
            cause=message(f"sy301.source_cause_{kind}", code=short_text(sync.of, 40), step=step_of(sync.region)),
            change=message(f"sy301.source_change_{kind}"),
            related=call_path(sync.region),
            fix=_fix(sync, code),
        )


def _fix(sync: Sync, code: Code) -> Fix | None:
    """Not a safe one: the device adds in the precision of the loss, Python in double precision."""
    edits = defer_read(sync, code)
    return None if edits is None else Fix(message("sy301.fix"), edits, is_safe=False)


_LOOP = """
model = Net().to(device)
total, steps, losses = 0.0, 0, []
for step, (x, y) in enumerate(loader):
    x, y = x.to(device), y.to(device)
    output = model(x)
    loss = criterion(output, y)
    loss.backward()
    optimizer.step()
    %s
print(f"{loss:.3f}", total)
"""
_HELPER = """
class Average:
    def update(self, value, n):
        self.total += value.item() * n  # found

def train(model, loader, device):
    seen = Average()
    for x, y in loader:
        loss = F.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen.update(loss, len(x))
"""
_LIGHTNING = """
class Lit(pl.LightningModule):
    def training_step(self, batch, index):
        loss = self.net(batch)
        self.history.append(loss.item())  # found
        self.log("loss", loss)
        return loss

    def validation_step(self, batch, index):
        self.scores.append(self.net(batch).item())
"""


_CLOSURE = """
def running_mean(beta):
    total = {}

    def update(values):
        for key, value in values.items():
            total[key] = total.get(key, 0) * beta + float(value)  # found
        return total
    return update

def train(model, loader, device):
    average = running_mean(0.9)
    for x in loader:
        loss = model(x.to(device)).mean()
        loss.backward()
        optimizer.step()
        shown = average({"loss": loss})
"""
_HOOK = """
def stop_if_nan(gradient):
    if torch.isnan(gradient).any():  # found
        raise ValueError

def train(model, loader, device):
    for x in loader:
        loss = model(x.to(device)).mean()
        loss.register_hook(stop_if_nan)
        loss.backward()
        optimizer.step()
"""
_SHOWN = """
class Trainer:
    def train(self):
        for self.step, batch in enumerate(self.loader):
            self.advance(batch)
            self.show()

    def advance(self, batch):
        loss, losses = self.compute_loss(self.model(batch.to(self.device)))
        loss.backward()
        self.optimizer.step()
        self.losses = losses

    def show(self):
        self.bar.set_description(("%s" + "%.3g" * 3) % (self.step, *self.losses))  # found
"""
_NO_LOOP = """
class Agent:
    def feed(self, transition):
        self.memory.append(transition)
        self.train()

    def train(self):
        loss = self.update(self.memory)
        self.losses.append(loss)

    def update(self, batch):
        loss = self.criterion(self.net(batch.to(self.device)))
        loss.backward()
        self.optimizer.step()
        return loss.item()  # found
"""
_BROUGHT = """
def losses(output, target):
    parts = torch.stack([F.l1_loss(output, target), F.mse_loss(output, target)])
    return parts.sum(), parts.detach().to("cpu", non_blocking=True)

def train(model, loader, device):
    for x, y in loader:
        loss, parts = losses(model(x.to(device)), y.to(device))
        loss.backward()
        optimizer.step()
        log(float(parts[0]), float(parts[1]))
"""
_SCORING = """
class Detector:
    def fit_inner(self, x):
        loss = self.net(x.to(self.device)).mean()
        loss.backward()
        self.optimizer.step()
        return loss

    def decision_function(self, loader):
        self.net.eval()
        scores = []
        for x in loader:
            scores.append(self.fit_inner(x).item())
        return scores
"""
_step = cases_in(_LOOP)
SOURCE_CASES = (
    _step("finds it when the loss is read each step", "total += loss.item()  # found"),
    _step("finds it when a weighted loss is summed", "total += loss.item() * len(x)  # found"),
    _step("finds it when hits are counted", "steps += (output.argmax(1) == y).sum().item()  # found"),
    _step("finds it when a loss is printed", 'print(f"loss {loss:.4f}")  # found'),
    _step("finds it when a progress bar shows it", "bar.set_postfix(loss=loss.item())  # found"),
    _step("finds it when results go to the host", "losses.append(output.detach().cpu().numpy())  # found"),
    _step("finds it when a number is made of it", "total += float(loss)  # found"),
    _step("finds it on the one rank that logs", "if rank == 0:", "    total += loss.item()  # found"),
    _step("finds it when a step hangs on the loss", "if loss > 100:  # found", "    steps += 1"),
    _step(
        "finds it when a bar is given the loss of the step before",
        'bar.set_description(f"{last:.3f}")  # found',
        "last = loss",
    ),
    SourceCase("finds it in a meter that the step calls", _HELPER),
    SourceCase("finds it in what a function made for the step", _CLOSURE),
    SourceCase("finds it in a hook of the backward pass", _HOOK),
    SourceCase("finds it when one method leaves it to another", _SHOWN),
    SourceCase("finds it when whoever calls the step is not there", _NO_LOOP),
    SourceCase("finds it in what Lightning calls", _LIGHTNING),
    _step("quiet when a remainder says it is time", "if np.remainder(step, 100) == 0:", "    print(loss.item())"),
    SourceCase("quiet when a helper has brought it to the host", _BROUGHT),
    SourceCase("quiet when it scores, whatever it fits on the way", _SCORING),
    _step("quiet when it is read every hundred steps", "if step % 100 == 0:", "    print(loss.item())"),
    _step("quiet when the loop goes on before", "if step % 100:", "    continue", "print(loss.item())"),
    _step("quiet when it stays on the device", "total += loss.detach()", "losses.append(loss.detach())"),
    _step("quiet when a number on the host is read", "total += float(len(x))", "count = y.size(0)"),
    _step("quiet when a flag says it is time", "due = (step + 1) % 50 == 0", "if due:", "    print(loss.item())"),
    _step("quiet when it is read now and then in one line", "total += loss.item() if step % 10 == 0 else 0.0"),
    _step("quiet when debugging", "if args.debug:", "    print(loss.item())"),
    _step("quiet when a check finds something wrong", "if skip_nan:", "    print(loss.item())"),
    _step("quiet when it evaluates", "if step % 500 == 0:", "    evaluate(model)", "torch.save(model, path)"),
    SourceCase("quiet when no device is in sight", _LOOP.replace(".to(device)", "") % "total += loss.item()"),
)
