"""The two stages of training."""

# mypy: ignore-errors
import torch
import torch.nn.functional as F

MARGIN = 0.3


def classify(net, bank, steps, batch):
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    for step in range(1, steps + 1):
        images, finger = bank.draw(batch)
        loss = F.cross_entropy(net.classify(images), bank.kind[finger])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 0:
            print(f"classify {step} loss {loss.item():.4f}")


@torch.no_grad()
def hardest(net, images, finger, pool, owner):
    """For every anchor, the pool's nearest print of another finger, as the network sees them now."""
    near = net(images) @ net(pool).T
    near[finger[:, None] == owner] = -2.0
    return near.argmax(1)


def tell_apart(net, bank, steps, anchors, pool):
    optimizer = torch.optim.Adam(net.parameters(), 5e-4)
    for step in range(1, steps + 1):
        candidates, owner = bank.draw(pool)
        images, finger = bank.draw(anchors)
        chosen = hardest(net, images, finger, candidates, owner)
        a, p, n = net(torch.cat([images, bank.other_view(finger), candidates[chosen]])).chunk(3)
        loss = F.relu(MARGIN + (a - p).square().sum(1) - (a - n).square().sum(1)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 25 == 0:
            print(f"tell apart {step} loss {loss.item():.4f}")
