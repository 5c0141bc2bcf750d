"""Batches of point clouds of different sizes."""
# mypy: ignore-errors

import torch


class Clouds:
    """Points of all clouds below each other, with the cloud that each belongs to."""

    def __init__(self, points, owner, labels):
        self.points, self.owner, self.labels = points, owner, labels

    def __len__(self):
        return len(self.labels)


def merge_slowly(clouds):
    points, owner = torch.empty(0, 3), torch.empty(0, dtype=torch.long)
    for number, (cloud, _) in enumerate(clouds):
        for chunk in cloud.split(6):  # guilty
            points = torch.cat([points, chunk])  # guilty
            owner = torch.cat([owner, torch.full((len(chunk),), number)])  # guilty
    return Clouds(points, owner, torch.tensor([label for _, label in clouds]))


def merge(clouds):
    sizes = torch.tensor([len(cloud) for cloud, _ in clouds])
    owner = torch.arange(len(clouds)).repeat_interleave(sizes)
    return Clouds(torch.cat([cloud for cloud, _ in clouds]), owner, torch.tensor([label for _, label in clouds]))
