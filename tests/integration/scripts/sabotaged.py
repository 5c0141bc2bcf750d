"""Breaks the tracer's methods one by one, each in a forked child that then trains: it must train the same.

Bare, it trains once. Watched, it also tells for each method whether the child's output, exit code and messages were
as they should be.
"""

from __future__ import annotations

import gc
import inspect
import io
import json
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from types import FunctionType
from typing import Any, NoReturn

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

# The last resort when something fails, and what only runs at the start or at the end of a process.
SPARED = (
    "trouble",
    "uninstall",
    "install",
    "remove",
    "restore",
    "close",
    "start",
    "stop",
    "run",
    "guard",
    "_collate",
)
MODULES = (
    "tracer",
    "phases",
    "steps",
    "sites",
    "graph",
    "batch",
    "recorder",
    "watch.backward",
    "watch.loader",
    "watch.fetch",
    "watch.optimizer",
    "watch.interruptions",
)


def raiser(*_args: Any, **_kwargs: Any) -> NoReturn:
    raise ZeroDivisionError("planted in flatout's own code")


def targets() -> Iterator[tuple[Any, str]]:
    """Every method and function of the modules on the hot path."""
    for name in MODULES:
        module = sys.modules.get(f"_flatout_attach.{name}")
        for owner in [module, *vars(module).values()] if module else []:
            if getattr(owner, "__module__", None) != getattr(module, "__name__", "") and owner is not module:
                continue
            for attribute, value in list(vars(owner).items()) if hasattr(owner, "__dict__") else []:
                if not isinstance(value, FunctionType) or attribute in SPARED or attribute.startswith("__"):
                    continue
                # One that guards its own body can only be broken from within.
                if "trouble(error)" not in inspect.getsource(value):
                    yield owner, attribute


def train() -> None:
    torch.manual_seed(1)
    loader = DataLoader(TensorDataset(torch.randn(24, 8)), batch_size=8, shuffle=True)
    model = nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _epoch in range(2):
        for (x,) in loader:
            loss = model(x).square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            print(f"loss {loss.item():.9f}")
        torch.save(model.state_dict(), io.BytesIO())
        gc.collect(0)
        model.eval()
        with torch.no_grad():
            print("loss", sum(float(model(x).sum()) for (x,) in loader))
        model.train()


def in_child(owner: Any, attribute: str | None) -> tuple[str, str, int]:
    """Output, messages and exit code of a training with one thing broken."""
    sys.stdout.flush()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            os.dup2(out.fileno(), 1)
            os.dup2(err.fileno(), 2)
            code = 1
            try:
                if attribute is not None:
                    setattr(owner, attribute, raiser)
                train()
                code = 0
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        _, status = os.waitpid(child, 0)
        out.seek(0)
        err.seek(0)
        return out.read(), err.read(), os.waitstatus_to_exitcode(status)


torch.set_num_threads(1)
train()  # here too, because the first optimizer imports half of torch: once, not in every child
reference, _, _ = in_child(None, None)
for owner, attribute in targets():
    output, messages, code = in_child(owner, attribute)
    facts = {
        "target": f"{getattr(owner, '__module__', '') or ''} {owner.__name__}.{attribute}",
        "same": output == reference and reference.count("loss") == 8,
        "code": code,
        "messages": messages.splitlines(),
    }
    print("BROKEN " + json.dumps(facts), flush=True)
