"""Code made up for the cases of a problem: texts that have it marked, and trainings to put lines into."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SourceCase:
    """Code and the lines of it that have the problem: those that end in `# found`. One text is a `train.py`."""

    name: str
    code: str | Mapping[str, str]

    @property
    def files(self) -> dict[str, str]:
        return {"train.py": self.code} if isinstance(self.code, str) else dict(self.code)

    @property
    def lines(self) -> set[tuple[str, int]]:
        return {
            (file, number)
            for file, text in self.files.items()
            for number, line in enumerate(text.splitlines(), start=1)
            if line.rstrip().endswith("# found")
        }


# A training, into whose step a case puts lines of its own.
STEPS = """
import torch, wandb
from torch.utils.tensorboard import SummaryWriter
writer = SummaryWriter()
for epoch in range(9):
    for step, (x, y) in enumerate(loader):
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        %s
    print(epoch, step)
"""

# Epochs over a loader; a case puts the lines that make it before.
EPOCHS = """
for epoch in range(10):
    for images, labels in loader:
        loss = criterion(model(images.to(device)), labels.to(device))
        loss.backward()
        optimizer.step()
"""


def cases_in(template: str) -> Callable[..., SourceCase]:
    """Makes cases of a name and lines: these stand in the template in place of its `%s`, indented as that is."""
    (indent,) = re.findall(r"^( *)%s", template, re.MULTILINE)

    def case(name: str, *lines: str) -> SourceCase:
        return SourceCase(name, template % f"\n{indent}".join(lines))

    return case


in_each_step = cases_in(STEPS)
