"""Proximal policy optimisation of many-jointed arms that reach for targets.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
from agent import ActorCritic
from envs import JOINTS, OBSERVED, Arms
from torch import nn


def collect(envs, agent, seen, length):
    """One rollout of all arms; returns the trajectory and the last observation."""
    track = {key: [] for key in ("seen", "action", "chance", "value", "reward", "done")}
    for _ in range(length):
        action, chance, value = agent.act(seen)
        after, reward, done = envs.step(action.numpy())
        values = (seen, action, chance, value, torch.from_numpy(reward), torch.from_numpy(done))
        for column, item in zip(track.values(), values):
            column.append(item)
        seen = torch.from_numpy(after)
    return {key: torch.stack(column) for key, column in track.items()}, seen


def advantages(track, last_value, discount=0.97, smooth=0.95):
    gains = torch.zeros_like(track["reward"])
    running, following = torch.zeros_like(last_value), last_value
    for t in reversed(range(len(gains))):
        alive = 1 - track["done"][t]
        delta = track["reward"][t] + discount * alive * following - track["value"][t]
        running = delta + discount * smooth * alive * running
        gains[t], following = running, track["value"][t]
    return gains


def ppo_loss(agent, batch, clip=0.2):
    chance, entropy, value = agent.evaluate(batch["seen"], batch["action"])
    ratio = (chance - batch["chance"]).exp()
    gain = (batch["gain"] - batch["gain"].mean()) / (batch["gain"].std() + 1e-6)
    actor = -torch.minimum(ratio * gain, ratio.clamp(1 - clip, 1 + clip) * gain).mean()
    critic = 0.5 * (value - batch["goal"]).pow(2).mean()
    return actor + 0.5 * critic - 0.001 * entropy.mean()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=800)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--arms", type=int, default=64)
    cli.add_argument("--rollout", type=int, default=32)
    cli.add_argument("--epochs", type=int, default=4)
    cli.add_argument("--minibatch", type=int, default=512)
    args = cli.parse_args()
    torch.manual_seed(29)

    envs = Arms(args.arms, 31)
    agent = ActorCritic(OBSERVED, JOINTS, factored=args.fixed)
    optimizer = torch.optim.Adam(agent.parameters(), 3e-4, eps=1e-5)
    seen, step = torch.from_numpy(envs.observe()), 0
    while step < args.steps:
        track, seen = collect(envs, agent, seen, args.rollout)
        with torch.no_grad():
            track["gain"] = advantages(track, agent.critic(seen).squeeze(1))
        track["goal"] = track["gain"] + track["value"]
        flat = {key: column.flatten(0, 1) for key, column in track.items()}
        for _ in range(args.epochs):
            for rows in torch.randperm(len(flat["gain"])).split(args.minibatch):
                loss = ppo_loss(agent, {key: column[rows] for key, column in flat.items()})
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
                step += 1
                if step % 80 == 0:
                    print(f"step {step} loss {loss.item():.4f} reward {track['reward'].mean().item():.3f}")
                if step >= args.steps:
                    return


if __name__ == "__main__":
    main()
