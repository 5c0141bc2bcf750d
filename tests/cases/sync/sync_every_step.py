"""Runs and code that have SY301, and that must stay quiet."""

from __future__ import annotations

from flatout.records.report import Location, SyncSite
from tests.cases.code import SourceCase, cases_in
from tests.cases.evidence import HERE, Case, on_gpu, run


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
