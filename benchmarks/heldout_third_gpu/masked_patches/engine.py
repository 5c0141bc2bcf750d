"""The loop, and hooks that are called in it."""

# mypy: ignore-errors

import torch


class Hook:
    def before(self, engine):
        pass

    def after_step(self, engine):
        pass

    def after(self, engine):
        pass


class Every(Hook):
    """Calls another hook at each n-th step."""

    def __init__(self, n, action):
        self.n, self.action = n, action

    def after_step(self, engine):
        if engine.step % self.n == 0:
            self.action(engine)


class Schedule(Hook):
    def __init__(self, peak, warmup):
        self.peak, self.warmup = peak, warmup

    def after_step(self, engine):
        share = min(1.0, (engine.step + 1) / self.warmup)
        for group in engine.optimizer.param_groups:
            group["lr"] = self.peak * share


class Average(Hook):
    def __init__(self, decay):
        self.decay = decay

    def before(self, engine):
        self.weights = list(engine.model.parameters())
        self.kept = [p.detach().clone() for p in self.weights]

    @torch.no_grad()
    def after_step(self, engine):
        torch._foreach_lerp_(self.kept, self.weights, 1 - self.decay)


class Engine:
    def __init__(self, model, optimizer, data, hooks):
        self.model, self.optimizer, self.data, self.hooks = model, optimizer, data, hooks
        self.device = next(model.parameters()).device.type
        self.step, self.loss = 0, None

    def train(self, steps):
        for hook in self.hooks:
            hook.before(self)
        while self.step < steps:
            with torch.autocast(self.device, dtype=torch.bfloat16):
                loss = self.model(self.data.batch(self.step))
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            self.optimizer.step()
            self.loss = loss.detach()
            self.step += 1
            for hook in self.hooks:
                hook.after_step(self)
        for hook in self.hooks:
            hook.after(self)

    @torch.no_grad()
    def evaluate(self, batches):
        with torch.autocast(self.device, dtype=torch.bfloat16):
            return torch.stack([self.model(batch) for batch in batches]).mean()
