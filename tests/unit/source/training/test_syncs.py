"""Which expressions of a step read a result from the device."""

from __future__ import annotations

import pytest

from flatout.source.code import Code
from flatout.source.project.loading import load_texts

STEP = """
import math, torch, wandb
from tqdm import tqdm
model = Net().to(device)
bar = tqdm(loader)
for step, (x, y) in enumerate(bar):
    x, y = x.to(device), y.to(device)
    outputs = model(x)
    loss = criterion(outputs, y)
    loss.backward()
    optimizer.step()
    {}
"""


def ops(line: str) -> list[str]:
    code = Code(load_texts({"train.py": STEP.format(line)}))
    return [one.op for one in code.syncs]


@pytest.mark.parametrize(
    "line",
    [
        "total += loss.item()",
        "out = outputs.cpu()",
        "out = outputs.detach().cpu().numpy()",
        "out = outputs.argmax(1).tolist()",
        "value = float(loss)",
        "value = int((outputs.argmax(1) == y).sum())",
        "print(loss)",
        'print(f"{loss:.4f}")',
        'print("loss %.4f" % loss)',
        'print("step %d loss %.4f" % (step, loss))',
        'print("loss {:.4f}".format(loss))',
        'writer.add_scalar("loss", loss, step)',
        'wandb.log({"loss": loss})',
        "wandb.log(dict(loss=loss))",
        'self.run.track(loss, name="loss")',
        "bar.set_postfix(loss=loss)",
        'bar.set_postfix({"loss": loss})',
        'bar.set_description(f"loss {loss}")',
        "meter.update(loss.item(), len(x))",
        "print(outputs.loss)",
        "if math.isnan(loss): stop()",
        "if torch.isnan(loss).any(): stop()",
        "if not torch.isfinite(loss): stop()",
        'logger.info("loss %s", loss)',
    ],
)
def test_reading_a_result_is_one(line: str) -> None:
    assert len(ops(line)) == 1


@pytest.mark.parametrize(
    "line",
    [
        "total += loss.detach()",
        "print(step, len(x), x.shape)",
        'print("%d of %d" % (step, len(loader)))',
        "rest = step % 7",
        "if math.isnan(scale): stop()",
        "bar.update(1)",
        "wandb.log({'lr': optimizer.param_groups[0]['lr']})",
        "self.log('loss', loss)",
        "metric.update(outputs, y)",
        "if step % 100 == 0: print(loss.item())",
        "print(outputs.shape)",
    ],
)
def test_what_stays_on_the_device_or_never_was_there_is_none(line: str) -> None:
    assert ops(line) == []
