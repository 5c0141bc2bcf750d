"""The world model, the actor and the critic."""

# mypy: ignore-errors
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical

SENSES, ACTIONS = 12, 2


def mlp(size, hidden, out):
    return nn.Sequential(nn.Linear(size, hidden), nn.SiLU(), nn.Linear(hidden, out))


class WorldModel(nn.Module):
    def __init__(self, latent=32, width=128, fixed=False):
        super().__init__()
        self.fixed = fixed
        self.encoder = mlp(SENSES, 96, latent)
        self.rnn = nn.GRU(latent + ACTIONS, width, batch_first=True)
        self.next_latent = mlp(width, 96, latent)
        self.decoder = mlp(latent, 96, SENSES)
        self.reward = mlp(width, 64, 1)

    def loss(self, observations, actions, rewards):
        latent = self.encoder(observations)
        hidden, _ = self.rnn(torch.cat([latent, actions], 2))
        ahead = self.next_latent(hidden[:, :-1])
        sensed = F.mse_loss(self.decoder(latent), observations)
        sensed = sensed + F.mse_loss(self.decoder(ahead), observations[:, 1:])
        gained = F.mse_loss(self.reward(hidden).squeeze(2), rewards)
        return sensed + gained + 0.1 * F.mse_loss(ahead, latent[:, 1:].detach())

    @torch.no_grad()
    def imagine(self, observations, actions, actor, horizon):
        """Dreams on from the end of real sequences, with the actions of the actor."""
        sequence = torch.cat([self.encoder(observations), actions], 2)
        hidden, state = self.rnn(sequence)
        feature = hidden[:, -1]
        features, chosen, rewards = [], [], []
        for _ in range(horizon):
            choice = actor(feature).sample()
            features.append(feature)
            chosen.append(choice)
            moment = torch.cat([self.next_latent(feature), F.one_hot(choice, ACTIONS)], 1)
            if self.fixed:
                hidden, state = self.rnn(moment[:, None], state)
            else:
                sequence = torch.cat([sequence, moment[:, None]], 1)
                hidden, _ = self.rnn(sequence)  # guilty
            feature = hidden[:, -1]
            rewards.append(self.reward(feature).squeeze(1))
        return torch.stack(features, 1), torch.stack(chosen, 1), torch.stack(rewards, 1), feature


class Actor(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.net = mlp(width, 96, ACTIONS)

    def forward(self, feature):
        return Categorical(logits=self.net(feature), validate_args=False)


class Critic(nn.Module):
    def __init__(self, width=128):
        super().__init__()
        self.net = mlp(width, 96, 1)

    def forward(self, feature):
        return self.net(feature).squeeze(-1)
