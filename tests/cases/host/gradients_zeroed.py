"""Code that has HO410, and that must stay quiet."""

from __future__ import annotations

from tests.cases.code import SourceCase, cases_in

_LOOP = """
for x, y in loader:
    %s
    criterion(model(x), y).backward()
    optimizer.step()
"""
_step = cases_in(_LOOP)
SOURCE_CASES = (
    _step("finds it when zeros are asked for", "optimizer.zero_grad(set_to_none=False)  # found"),
    _step("finds it when they are asked for by place", "model.zero_grad(False)  # found"),
    _step(
        "finds it in a loop",
        "for p in model.parameters():  # found",
        "    if p.grad is not None:",
        "        p.grad.data.zero_()",
    ),
    _step("quiet when gradients are dropped", "optimizer.zero_grad()", "model.zero_grad(set_to_none=True)"),
    _step("quiet when the loop drops them", "for p in model.parameters():", "    p.grad = None"),
    _step("quiet when it cannot be told", "optimizer.zero_grad(set_to_none=keep)"),
    SourceCase(
        "quiet when a graph was captured", "graph = torch.cuda.CUDAGraph()\n" + _LOOP % "model.zero_grad(False)"
    ),
)
