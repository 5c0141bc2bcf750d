"""One optimizer step without a wait for the device; on a GPU replayed as a CUDA graph."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import AdamW, Optimizer

from slider.config import Config
from slider.engine import autocast, learning_rate, make_optimizer, set_learning_rate
from slider.loaders import Batch
from slider.losses import Losses, loss_terms
from slider.model import SliderNet

REPORT = ("loss", "heatmap", "offset", "points", "grad_norm")
EAGER_STEPS = 3  # before the capture: cuDNN chooses its algorithms, the optimizer makes its state
# How an optimizer computes, not what: the project's own settings in a checkpoint, this run's here.
HOW = ("lr", "fused", "foreach", "capturable")


def losses_without_wait(
    logits: Tensor, offsets: Tensor, heatmap_target: Tensor, offset_target: Tensor, weight: float
) -> Losses:
    """As `heatmap_loss`; without a point the sums are divided by one instead of asking whether there is a point."""
    terms = loss_terms(logits, offsets, heatmap_target, offset_target)
    num_pos = terms.positives.clamp(min=1)
    heatmap = -(terms.found + terms.background) / num_pos
    offset = terms.offset / num_pos
    return Losses(heatmap + weight * offset, heatmap, offset, terms.positives)


class Stepper:
    def __init__(self, config: Config, model: SliderNet, device: torch.device, graphed: bool, lr_scale: float) -> None:
        self.config, self.model, self.device = config, model, device
        self.graphed, self.lr_scale = graphed, lr_scale
        self.optimizer: Optimizer = make_optimizer(model, config.train)
        self.lr: Tensor | None = None
        if graphed:
            self.lr = torch.tensor(config.train.lr, device=device)
            self.optimizer = AdamW(
                model.parameters(), self.lr, weight_decay=config.train.weight_decay, fused=True, capturable=True
            )
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs: Batch = {}
        self.report = torch.empty(0)
        self.taken = 0

    def __call__(self, batch: Batch, step: int) -> Tensor:
        """The figures of `REPORT` for this step, still on the device."""
        self._set_rate(learning_rate(self.config.train, step) * self.lr_scale)
        self.taken += 1
        if not self.graphed or self.taken <= EAGER_STEPS:
            return self._compute(batch)
        if self.graph is None:
            self._capture(batch)
        assert self.graph is not None
        for name, values in self.inputs.items():
            values.copy_(batch[name])
        self.graph.replay()
        return self.report.clone()

    def _set_rate(self, value: float) -> None:
        if self.lr is None:
            set_learning_rate(self.optimizer, value)
        else:
            self.lr.fill_(value)

    def _compute(self, batch: Batch) -> Tensor:
        train = self.config.train
        with autocast(self.config, self.device):
            logits, offsets = self.model(batch["images"])
        losses = losses_without_wait(logits, offsets, batch["heatmaps"], batch["offsets"], train.offset_weight)
        self.optimizer.zero_grad(set_to_none=True)
        losses.total.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), train.grad_clip)
        self.optimizer.step()
        return torch.stack([figure.detach() for figure in (*losses, norm)])

    def _capture(self, batch: Batch) -> None:
        self.inputs = {name: torch.empty_like(values) for name, values in batch.items()}
        self.optimizer.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        # The readers' threads wait for events meanwhile: only this thread's calls concern the capture.
        with torch.cuda.graph(graph, stream=torch.cuda.current_stream(), capture_error_mode="thread_local"):
            self.report = self._compute(self.inputs)
        self.graph = graph

    def optimizer_state(self, step: int) -> dict[str, Any]:
        """As the project's own optimizer would give it, so that either script can take it up."""
        state = self.optimizer.state_dict()
        plain = {"fused": None, "foreach": None, "capturable": False, "lr": learning_rate(self.config.train, step)}
        return {**state, "param_groups": [{**group, **plain} for group in state["param_groups"]]}

    def load_optimizer_state(self, state: dict[str, Any]) -> None:
        mine = [{name: group[name] for name in HOW} for group in self.optimizer.param_groups]
        state = copy.copy(state)
        state["param_groups"] = [{**group, **how} for group, how in zip(state["param_groups"], mine, strict=True)]
        self.optimizer.load_state_dict(state)
        # Loading copied the learning rate; the step fills this one.
        for group, how in zip(self.optimizer.param_groups, mine, strict=True):
            group.update(how)
