"""Trainings of many kinds, one after the other: some call a module in vain, some only seem to.

They print their losses. On a GPU if there is one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

STEPS = 12
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def body(*more: nn.Module, inputs: int = 16, outputs: int = 16) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, 32), nn.ReLU(), *more, nn.Linear(32, outputs)).to(device)


def batch(rows: int = 8) -> torch.Tensor:
    return torch.randn(rows, 16, device=device)


def sgd(*nets: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD([weight for net in nets for weight in net.parameters()], lr=1e-3)


def step(optimizer: torch.optim.Optimizer, loss: torch.Tensor) -> float:
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


def fine_first() -> float:
    """Without a window: it comes too soon."""
    net = body()
    optimizer = sgd(net)
    for _ in range(3 * STEPS):
        last = step(optimizer, net(batch()).square().mean())
    return last


# In vain.


def vain_generator_for_each_loss() -> float:
    there, back, critic = body(), body(), body(outputs=1)
    optimizer = sgd(there, back)
    for _ in range(STEPS):
        x = batch()
        loss = critic_loss(critic.requires_grad_(False), there(x))
        loss = loss + F.l1_loss(back(there(x)), x)
        last = step(optimizer, loss)
    return last


def critic_loss(critic: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return (critic(x) - 1).square().mean()


def vain_chain() -> float:
    encoder, head = body(), body()
    optimizer = sgd(encoder, head)
    for _ in range(STEPS):
        x = batch()
        last = step(optimizer, head(encoder(x)).square().mean() + head(encoder(x)).abs().mean())
    return last


def vain_metric_with_dropout() -> float:
    net = body(nn.Dropout(0.5))
    optimizer = sgd(net)
    for _ in range(STEPS):
        x = batch()
        loss = net(x).square().mean()
        accuracy = float(net(x).argmax(1).float().mean())
        last = step(optimizer, loss) + accuracy
    return last


def vain_metric_before_the_step() -> float:
    net = body(nn.BatchNorm1d(32))
    optimizer = sgd(net)
    for _ in range(STEPS):
        x = batch()
        with torch.no_grad():
            accuracy = float(net(x).argmax(1).float().mean())
        last = step(optimizer, net(x).square().mean()) + accuracy
    return last


def vain_fake_for_either_player() -> float:
    generator, critic = body(), body(outputs=1)
    of_generator, of_critic = sgd(generator), sgd(critic)
    for _ in range(STEPS):
        real, noise = batch(), batch()
        with torch.no_grad():
            fake = generator(noise)
        step(of_critic, critic(fake).mean() - critic(real).mean())
        last = step(of_generator, -critic(generator(noise)).mean())
    return last


def vain_teacher_with_gradients() -> float:
    teacher, student = body(), body()
    optimizer = sgd(student)
    for _ in range(STEPS):
        x = batch()
        last = step(optimizer, F.mse_loss(student(x), teacher(x)))
    return last


def vain_average_with_gradients() -> float:
    student = body()
    teacher = copy.deepcopy(student)
    optimizer = sgd(student)
    for _ in range(STEPS):
        x = batch()
        last = step(optimizer, F.mse_loss(student(x), teacher(x + 0.1)))
        with torch.no_grad():
            for ours, theirs in zip(teacher.parameters(), student.parameters(), strict=True):
                ours.lerp_(theirs, 0.01)
    return last


def vain_perceptual_loss() -> float:
    net, judge = body(), body()
    optimizer = sgd(net)
    for _ in range(STEPS):
        last = step(optimizer, judge(net(batch())).square().mean())
    return last


def vain_passes() -> float:
    trunk, heads = body(), [body(outputs=1) for _ in range(3)]
    optimizer = sgd(trunk, *heads)
    for _ in range(STEPS):
        shared = trunk(batch())
        optimizer.zero_grad()
        for head in heads:
            loss = head(shared).square().mean()
            loss.backward(retain_graph=True)
        optimizer.step()
    return loss.item()


def vain_passes_of_two_players() -> float:
    generator, critic = body(), body(outputs=1)
    of_generator, of_critic = sgd(generator), sgd(critic)
    for _ in range(STEPS):
        fake = generator(batch())
        of_critic.zero_grad()
        critic(fake).mean().backward(retain_graph=True)
        of_critic.step()
        last = step(of_generator, -critic(fake).mean())
    return last


class Generator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x).tanh()
        return self.last(x).tanh()


def vain_fake_with_gradients() -> float:
    generator, critic = Generator().to(device), body(outputs=1)
    of_generator, of_critic = sgd(generator), sgd(critic)
    for _ in range(STEPS):
        of_critic.zero_grad()
        fake = generator(batch())
        (critic(fake).mean() - critic(batch()).mean()).backward()
        nn.utils.clip_grad_norm_(critic.parameters(), 1.0)
        of_critic.step()
        of_generator.zero_grad()
        loss = -critic(generator(batch())).mean()
        loss.backward()
        nn.utils.clip_grad_norm_(generator.parameters(), 1.0)
        of_generator.step()
    return loss.item()


def vain_fake_after_the_generator() -> float:
    """What the critic's step leaves is cleared in the next step."""
    generator, critic = body(), body(outputs=1)
    of_generator, of_critic = sgd(generator), sgd(critic)
    for _ in range(STEPS):
        step(of_generator, -critic(generator(batch())).mean())
        last = step(of_critic, critic(generator(batch())).mean() - critic(batch()).mean())
    return last


def vain_fake_in_parts() -> float:
    """Gradients are added up over two micro-batches, and all are cleared at the end."""
    generator, critic = body(), body(outputs=1)
    of_generator, of_critic = sgd(generator), sgd(critic)
    for _ in range(STEPS):
        for _ in range(2):
            (critic(generator(batch())).mean() - critic(batch()).mean()).backward()
        of_critic.step()
        of_critic.zero_grad()
        of_generator.zero_grad()
        for _ in range(2):
            loss = -critic(generator(batch())).mean()
            loss.backward()
        of_generator.step()
        of_generator.zero_grad()
        of_critic.zero_grad()
    return loss.item()


def vain_next_action() -> float:
    actor, critic = body(outputs=4), body(inputs=20, outputs=1)
    target = copy.deepcopy(critic).requires_grad_(False)
    of_actor, of_critic = sgd(actor), sgd(critic)
    for _ in range(STEPS):
        state, action, reward, following = batch(), batch()[:, :4], batch()[:, :1], batch()
        value = reward + 0.9 * target(torch.cat([following, actor(following)], 1))
        step(of_critic, F.mse_loss(critic(torch.cat([state, action], 1)), value))
        last = step(of_actor, -critic(torch.cat([state, actor(state)], 1)).mean())
        with torch.no_grad():
            for ours, theirs in zip(target.parameters(), critic.parameters(), strict=True):
                ours.lerp_(theirs, 0.01)
    return last


class Reader(nn.Module):
    """A recurrent network over sequences, with the outputs of all positions."""

    def __init__(self) -> None:
        super().__init__()
        self.rnn, self.head = nn.GRU(16, 16, batch_first=True), nn.Linear(16, 16)

    def forward(self, rows: torch.Tensor, state: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
        out, state = self.rnn(rows, state)
        return self.head(out), state


def rows(length: int) -> torch.Tensor:
    return torch.randn(4, length, 16, device=device)


def vain_prefix_rnn() -> float:
    net = Reader().to(device)
    optimizer = sgd(net)
    for _ in range(STEPS):
        known, losses = rows(13), []
        for seen in range(1, 13):
            guess = net(known[:, :seen])[0][:, -1]
            losses.append(F.mse_loss(guess, known[:, seen]))
        last = step(optimizer, torch.stack(losses).mean())
    return last


def vain_rollout_with_cat() -> float:
    """Twice in each step, with a prompt."""
    net = Reader().to(device)
    optimizer = sgd(net)
    for _ in range(STEPS):
        losses = []
        for _ in range(2):
            sequence = rows(3)
            for _ in range(9):
                new = net(rows=sequence)[0][:, -1:]
                sequence = torch.cat([sequence, new], 1)
            losses.append(sequence.square().mean())
        last = step(optimizer, torch.stack(losses).mean())
    return last


# As it should be.


def fine_passes_apart() -> float:
    """As PCGrad does: the gradients of each loss are taken away."""
    trunk, heads = body(), [body(outputs=1) for _ in range(3)]
    optimizer = sgd(trunk, *heads)
    for _ in range(STEPS):
        shared = trunk(batch())
        taken = []
        for head in heads:
            optimizer.zero_grad()
            loss = head(shared).square().mean()
            loss.backward(retain_graph=True)
            taken.append([weight.grad.clone() for weight in trunk.parameters() if weight.grad is not None])
        for weight, *gradients in zip(trunk.parameters(), *taken, strict=True):
            weight.grad = torch.stack(gradients).clamp(-1, 1).sum(0)
        optimizer.step()
    return loss.item()


def fine_average() -> float:
    student = body()
    teacher = copy.deepcopy(student)
    optimizer = sgd(student)
    for _ in range(STEPS):
        x = batch()
        with torch.no_grad():
            target = teacher(x)
        last = step(optimizer, F.mse_loss(student(x), target))
        with torch.no_grad():
            for ours, theirs in zip(teacher.parameters(), student.parameters(), strict=True):
                ours.lerp_(theirs, 0.01)
    return last


def fine_gan() -> float:
    generator, critic = body(), body(outputs=1)
    of_generator, of_critic = sgd(generator), sgd(critic)
    for _ in range(STEPS):
        real, fake = batch(), generator(batch())
        step(of_critic, critic(fake.detach()).mean() - critic(real).mean())
        last = step(of_generator, -critic(fake).mean())
    return last


class Critic(nn.Module):
    """Its norms of weights, its classes and its encoder lead to its own weights alone."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.utils.parametrizations.spectral_norm(nn.Linear(16, 32))
        self.classes, self.encoder, self.last = nn.Embedding(4, 32), nn.Linear(16, 32), nn.Linear(32, 1)

    def forward(self, x: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        known = self.encoder(state).relu() + self.classes((state[:, 0] > 0).long())
        return self.last((self.first(x) + known).relu())


def fine_gan_of_classes() -> float:
    generator, critic = body(), Critic().to(device)
    of_generator, of_critic = sgd(generator), sgd(critic)
    for _ in range(STEPS):
        real, fake = batch(), generator(batch())
        of_critic.zero_grad(set_to_none=False)
        (critic(fake.detach(), batch()).mean() - critic(real, batch()).mean()).backward()
        nn.utils.clip_grad_norm_(critic.parameters(), 1.0)
        of_critic.step()
        of_generator.zero_grad(set_to_none=False)
        loss = -critic(fake, batch()).mean()
        loss.backward()
        nn.utils.clip_grad_value_(generator.parameters(), 0.1)
        of_generator.step()
    return loss.item()


def fine_actor_and_critic() -> float:
    actor, critic = body(outputs=4), body(inputs=20, outputs=1)
    of_actor, of_critic = sgd(actor), sgd(critic)
    for _ in range(STEPS):
        state, action, reward, following = batch(), batch()[:, :4], batch()[:, :1], batch()
        with torch.no_grad():
            value = reward + 0.9 * critic(torch.cat([following, actor(following)], 1))
        step(of_critic, F.mse_loss(critic(torch.cat([state, action], 1)), value))
        last = step(of_actor, -critic(torch.cat([state, actor(state)], 1)).mean())
    return last


def fine_losses_of_two_optimizers() -> float:
    """As PCGrad does, by hand: the trunk's gradients of each loss are taken away, the heads keep theirs."""
    trunk, heads = body(), [body(outputs=1) for _ in range(2)]
    of_trunk, of_heads = sgd(trunk), [sgd(head) for head in heads]
    for _ in range(STEPS):
        taken = []
        for head, of_head in zip(heads, of_heads, strict=True):
            of_trunk.zero_grad()
            last = step(of_head, head(trunk(batch())).square().mean())
            taken.append([weight.grad.clone() for weight in trunk.parameters() if weight.grad is not None])
        for weight, *gradients in zip(trunk.parameters(), *taken, strict=True):
            weight.grad = torch.stack(gradients).clamp(-1, 1).sum(0)
        of_trunk.step()
    return last


def fine_gradients_kept() -> float:
    """Those of another player's loss are held on to."""
    trunk, head = body(), body(outputs=1)
    of_trunk, of_head = sgd(trunk), sgd(head)
    for _ in range(STEPS):
        of_trunk.zero_grad()
        step(of_head, head(trunk(batch())).square().mean())
        kept = [weight.grad for weight in trunk.parameters()]
        last = step(of_trunk, trunk(batch()).square().mean())
        assert all(gradient is not None for gradient in kept)
    return last


def fine_two_optimizers() -> float:
    encoder, head = body(), body(outputs=1)
    optimizers = sgd(encoder), sgd(head)
    for _ in range(STEPS):
        for optimizer in optimizers:
            optimizer.zero_grad()
        for _ in range(2):
            loss = head(encoder(batch())).square().mean()
            loss.backward()
        nn.utils.clip_grad_norm_([*encoder.parameters(), *head.parameters()], 1.0)
        for optimizer in optimizers:
            optimizer.step()
    return loss.item()


def fine_generator_seldom_steps() -> float:
    generator, critic = body(), body(outputs=1)
    of_generator, of_critic = sgd(generator), sgd(critic)
    for number in range(2 * STEPS):
        fake = generator(batch())
        last = step(of_critic, critic(fake).mean() - critic(batch()).mean())
        if number % 5 == 4:
            step(of_generator, -critic(generator(batch())).mean())
    return last


def fine_siamese() -> float:
    net = body()
    optimizer = sgd(net)
    for _ in range(STEPS):
        last = step(optimizer, F.mse_loss(net(batch()), net(batch())))
    return last


def fine_checkpointed() -> float:
    net = body()
    optimizer = sgd(net)
    for _ in range(STEPS):
        last = step(optimizer, checkpoint(net, batch(), use_reentrant=False).square().mean())
    return last


def fine_penalty() -> float:
    net = body(outputs=1)
    optimizer = sgd(net)
    for _ in range(STEPS):
        x = batch().requires_grad_()
        value = net(x).sum()
        (slope,) = torch.autograd.grad(value, x, create_graph=True)
        last = step(optimizer, value + slope.square().mean())
    return last


def fine_inner_loop() -> float:
    net = body()
    outer = sgd(net)
    for _ in range(STEPS):
        x = batch()
        fast = copy.deepcopy(net)
        inner = sgd(fast)
        for _ in range(2):
            step(inner, fast(x).square().mean())
        outer.zero_grad()
        for ours, theirs in zip(net.parameters(), fast.parameters(), strict=True):
            ours.grad = ours.detach() - theirs.detach()
        loss = net(x).square().mean()
        loss.backward()
        outer.step()
    return loss.item()


def fine_closure() -> float:
    net, x = body(), batch()
    optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3)

    def again() -> torch.Tensor:
        optimizer.zero_grad()
        loss = net(x).square().mean()
        loss.backward()
        return loss

    for _ in range(STEPS):
        last = float(optimizer.step(again))  # type: ignore[arg-type]
    return last


def fine_accumulation() -> float:
    net = body()
    optimizer = sgd(net)
    for _ in range(STEPS):
        optimizer.zero_grad()
        for _ in range(3):
            loss = net(batch()).square().mean()
            loss.backward()
        optimizer.step()
    return loss.item()


def fine_cell() -> float:
    cell, head = nn.GRUCell(16, 16).to(device), body()
    optimizer = sgd(cell, head)
    for _ in range(STEPS):
        rows, always, state = batch(40).view(5, 8, 16), batch(), torch.zeros(8, 16, device=device)
        for number in range(5):
            state = cell(rows[number], state)
            state = cell(always, state)
        last = step(optimizer, head(state).square().mean())
    return last


class Spiking(nn.Module):
    """Keeps a state from call to call."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 16)
        self.state = torch.zeros(1, device=device)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.state = 0.5 * self.state + self.layer(x)
        return (self.state > 0).float() + self.state.tanh()


def fine_spiking() -> float:
    net = Spiking().to(device)
    optimizer = sgd(net)
    for _ in range(STEPS):
        x, net.state = batch(), torch.zeros(1, device=device)
        last = step(optimizer, torch.stack([net(x) for _ in range(4)]).mean(0).square().mean())
    return last


class Switched(nn.Module):
    """Computes without its adapter where that is off."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.adapter, self._is_on = body(), body(), True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.adapter(x) if self._is_on else self.base(x)


def fine_adapter_off() -> float:
    net = Switched().to(device)
    optimizer = sgd(net.adapter)
    net.base.requires_grad_(False)
    for _ in range(STEPS):
        x = batch()
        net._is_on = False
        with torch.no_grad():
            reference = net(x)
        net._is_on = True
        last = step(optimizer, F.mse_loss(net(x), 0.9 * reference))
    return last


def fine_frozen() -> float:
    backbone, head = body().requires_grad_(False), body()
    optimizer = sgd(head)
    for _ in range(STEPS):
        last = step(optimizer, head(backbone(batch())).square().mean())
    return last


def fine_two_dropouts() -> float:
    net = body(nn.Dropout(0.5))
    optimizer = sgd(net)
    for _ in range(STEPS):
        x = batch()
        last = step(optimizer, F.mse_loss(net(x), net(x)))
    return last


def fine_by_hand() -> float:
    net, extra = body(), body()
    optimizer = sgd(net)
    for _ in range(STEPS):
        extra.zero_grad()
        last = step(optimizer, extra(net(batch())).square().mean())
        with torch.no_grad():
            for weight in extra.parameters():
                weight.sub_(1e-3 * weight.grad)  # type: ignore[operator]
    return last


def fine_input_changed() -> float:
    net, x = body(), batch()
    optimizer = sgd(net)
    for _ in range(STEPS):
        with torch.no_grad():
            before = net(x)
        x.mul_(0.9)
        last = step(optimizer, F.mse_loss(net(x), before))
    return last


def fine_other_mode() -> float:
    net = body(nn.Dropout(0.5))
    optimizer = sgd(net)
    for _ in range(STEPS):
        x = batch()
        net.eval()
        target = net(x).detach()
        net.train()
        last = step(optimizer, F.mse_loss(net(x), target))
    return last


def fine_weights_changed() -> float:
    net, x = body(), batch()
    optimizer, other = sgd(net), sgd(net)
    for _ in range(STEPS):
        step(optimizer, net(x).square().mean())
        last = step(other, net(x).abs().mean())
    return last


def fine_teacher_forcing() -> float:
    net = Reader().to(device)
    optimizer = sgd(net)
    for _ in range(STEPS):
        known = rows(13)
        last = step(optimizer, F.mse_loss(net(known[:, :-1])[0], known[:, 1:]))
    return last


def fine_rollout_with_state() -> float:
    net = Reader().to(device)
    optimizer = sgd(net)
    for _ in range(STEPS):
        new, state = rows(1), None
        made = []
        for _ in range(12):
            new, state = net(new, state)
            made.append(new)
        last = step(optimizer, torch.cat(made, 1).square().mean())
    return last


class Attending(nn.Module):
    """One element, and what came before it."""

    def __init__(self) -> None:
        super().__init__()
        self.attention, self.head = nn.MultiheadAttention(16, 2, batch_first=True), nn.Linear(16, 16)

    def forward(self, new: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        return self.head(self.attention(new, seen, seen, need_weights=False)[0])


def fine_rollout_with_cache() -> float:
    net = Attending().to(device)
    optimizer = sgd(net)
    for _ in range(STEPS):
        new = seen = rows(1)
        for _ in range(12):
            new = net(new, seen)
            seen = torch.cat([seen, new], 1)
        last = step(optimizer, seen.square().mean())
    return last


def fine_lengths_of_buckets() -> float:
    """Several batches a step, of lengths as they come."""
    net = Reader().to(device)
    optimizer = sgd(net)
    for number in range(STEPS):
        lengths = sorted((7 * number + 5 * bucket * bucket) % 29 + 2 for bucket in range(9))
        losses = [net(rows(length))[0].square().mean() for length in lengths]
        last = step(optimizer, torch.stack(losses).mean())
    return last


def fine_buckets_of_each_size() -> float:
    net = Reader().to(device)
    optimizer = sgd(net)
    for _ in range(STEPS):
        losses = [net(rows(length))[0].square().mean() for length in range(4, 36, 4)]
        last = step(optimizer, torch.stack(losses).mean())
    return last


def fine_batches_that_grow() -> float:
    """Each with its own backward: they are accumulated."""
    net = Reader().to(device)
    optimizer = sgd(net)
    for _ in range(STEPS):
        optimizer.zero_grad()
        for length in range(1, 13):
            loss = net(rows(length))[0].square().mean()
            loss.backward()
        optimizer.step()
    return loss.item()


def fine_chunks() -> float:
    net = Reader().to(device)
    optimizer = sgd(net)
    for _ in range(STEPS):
        known, state, losses = rows(40), None, []
        for chunk in known.split(5, 1):
            out, state = net(chunk, state)
            losses.append(out.square().mean())
        last = step(optimizer, torch.stack(losses).mean())
    return last


def fine_sliding_window() -> float:
    net = Reader().to(device)
    optimizer = sgd(net)
    for _ in range(STEPS):
        known = rows(20)
        losses = [F.mse_loss(net(known[:, at : at + 8])[0][:, -1], known[:, at + 8]) for at in range(12)]
        last = step(optimizer, torch.stack(losses).mean())
    return last


def fine_pyramid() -> float:
    net = nn.Conv2d(1, 4, 3, padding=1).to(device)
    optimizer = sgd(net)
    for _ in range(STEPS):
        image = torch.randn(2, 1, 64, 64, device=device)
        smaller = [F.interpolate(image, size=(size, size)) for size in (8, 16, 24, 32, 40, 48, 56, 64)]
        longer = [F.interpolate(image, size=(8, 2**power)) for power in range(1, 9)]
        losses = [net(level).square().mean() for level in smaller] + [net(level).square().mean() for level in longer]
        last = step(optimizer, torch.stack(losses).mean())
    return last


def fine_dense_blocks() -> float:
    layers = nn.ModuleList(nn.Linear(8 * number, 8) for number in range(1, 11)).to(device)
    optimizer = sgd(layers)
    for _ in range(STEPS):
        x = torch.randn(8, 8, device=device)
        for layer in layers:
            x = torch.cat([x, layer(x).relu()], 1)
        last = step(optimizer, x.square().mean())
    return last


class Spread:
    """No module: weights, and a function that makes all there is to be known of them."""

    def __init__(self) -> None:
        self.weight = torch.nn.Parameter(torch.full((256, 64), 0.1, device=device))

    def everything(self, rounds: int = 3) -> torch.Tensor:
        x = self.weight
        for _ in range(rounds):
            x = torch.tanh(x @ x.t() @ x / 64)
        return x

    def some(self, rows: torch.Tensor, rounds: int = 3) -> torch.Tensor:
        return self.everything(rounds)[rows]


def spread_and_sgd() -> tuple[Spread, torch.optim.Optimizer]:
    made = Spread()
    return made, torch.optim.SGD([made.weight], lr=1e-3)


def vain_function() -> float:
    made, optimizer = spread_and_sgd()
    for _ in range(STEPS):
        one, other = torch.randint(256, (2, 16), device=device)
        everything = made.everything()
        last = step(optimizer, (everything[one] * made.everything()[other]).sum())
    return last


def fine_functions() -> float:
    """With other arguments, and a part that comes out alike by chance."""
    made, optimizer = spread_and_sgd()
    for _ in range(STEPS):
        one, other = torch.randint(256, (2, 16), device=device)
        chosen = made.some(one, 2) * made.some(other, 3)
        last = step(optimizer, chosen.sum() + nothing_of(made.weight, one) + nothing_of(made.weight, other))
    return last


def nothing_of(weight: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
    far = weight[rows] + torch.zeros(400, 1, 1, device=weight.device)
    return far.clamp(5.0, 6.0).sub(5.0).sum()


KINDS: list[Callable[[], float]] = [
    kind for name, kind in list(globals().items()) if name.startswith(("vain_", "fine_"))
]
for kind in KINDS:
    torch.manual_seed(0)
    print(f"loss {kind.__name__} {kind():.9f}")
