"""An agent that learns a recurrent world model of a cart with a pole, and its policy in imagined episodes.

expects: other
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn.functional as F
from cart import record
from models import Actor, Critic, WorldModel

HORIZON, DISCOUNT = 12, 0.95


def discounted(rewards, last):
    returns, total = [], last
    for reward in reversed(rewards.unbind(1)):
        total = reward + DISCOUNT * total
        returns.append(total)
    return torch.stack(returns[::-1], 1)


class Agent:
    def __init__(self, fixed):
        self.world, self.actor, self.critic = WorldModel(fixed=fixed), Actor(), Critic()
        self.world_optimizer = torch.optim.Adam(self.world.parameters(), 1e-3)
        self.actor_optimizer = torch.optim.Adam(self.actor.parameters(), 3e-4)
        self.critic_optimizer = torch.optim.Adam(self.critic.parameters(), 1e-3)

    def learn_world(self, observations, actions, rewards):
        loss = self.world.loss(observations, actions, rewards)
        self.world_optimizer.zero_grad()
        loss.backward()
        self.world_optimizer.step()
        return loss.detach()

    def learn_policy(self, observations, actions):
        features, chosen, rewards, last = self.world.imagine(observations, actions, self.actor, HORIZON)
        with torch.no_grad():
            returns = discounted(rewards, self.critic(last))
        value = self.critic(features)
        critic_loss = F.smooth_l1_loss(value, returns)
        self.critic_optimizer.zero_grad()
        critic_loss.backward()
        self.critic_optimizer.step()
        advantage = returns - value.detach()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-5)
        policy = self.actor(features)
        actor_loss = -(policy.log_prob(chosen) * advantage + 1e-3 * policy.entropy()).mean()
        self.actor_optimizer.zero_grad()
        actor_loss.backward()
        self.actor_optimizer.step()
        return rewards.mean()


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=150)
    cli.add_argument("--fixed", action="store_true")
    args = cli.parse_args()
    torch.manual_seed(8)
    episodes = record(episodes=64, length=80, seed=5)
    agent, span = Agent(args.fixed), 12
    offsets = torch.arange(span)
    for step in range(1, args.steps + 1):
        rows = torch.randint(64, (32, 1))
        times = torch.randint(80 - span, (32, 1)) + offsets
        observations, actions, rewards = (part[rows, times] for part in episodes)
        loss = agent.learn_world(observations, actions, rewards)
        imagined = agent.learn_policy(observations, actions)
        if step % 30 == 0:
            print(f"step {step} world {loss.item():.4f} imagined reward {imagined.item():.4f}")


if __name__ == "__main__":
    main()
