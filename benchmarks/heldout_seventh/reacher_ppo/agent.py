"""Actor and critic for continuous torques."""

# mypy: ignore-errors
import torch
from torch import nn
from torch.distributions import Independent, MultivariateNormal, Normal


def mlp(inputs, width, outputs, last_gain):
    layers = [nn.Linear(inputs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, outputs)]
    for layer in layers[::2]:
        nn.init.orthogonal_(layer.weight, 2**0.5)
        nn.init.zeros_(layer.bias)
    nn.init.orthogonal_(layers[-1].weight, last_gain)
    return nn.Sequential(*layers)


class ActorCritic(nn.Module):
    def __init__(self, observed, joints, width=128, factored=False):
        super().__init__()
        self.actor = mlp(observed, width, joints, 0.01)
        self.critic = mlp(observed, width, 1, 1.0)
        self.log_std = nn.Parameter(torch.full((joints,), -0.5))
        self.factored = factored

    def policy(self, seen):
        mean = self.actor(seen)
        std = self.log_std.exp().expand_as(mean)
        if self.factored:
            return Independent(Normal(mean, std), 1)
        return MultivariateNormal(mean, covariance_matrix=torch.diag_embed(std**2))  # guilty

    @torch.no_grad()
    def act(self, seen):
        policy = self.policy(seen)
        action = policy.sample()
        return action, policy.log_prob(action), self.critic(seen).squeeze(1)

    def evaluate(self, seen, action):
        policy = self.policy(seen)  # guilty
        return policy.log_prob(action), policy.entropy(), self.critic(seen).squeeze(1)  # guilty
