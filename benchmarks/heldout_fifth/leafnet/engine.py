# mypy: ignore-errors
import torch
import torch.nn as nn
import torch.nn.functional as F


class Bottleneck(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(i, o, 3, stride, 1, bias=False),
            nn.BatchNorm2d(o),
            nn.ReLU(inplace=True),
            nn.Conv2d(o, o, 3, 1, 1, bias=False),
            nn.BatchNorm2d(o),
        )
        self.skip = nn.Conv2d(i, o, 1, stride, bias=False)

    def forward(self, x):
        return F.relu(self.body(x) + self.skip(x))


class LeafNet(nn.Module):
    def __init__(self, width, classes):
        super().__init__()
        self.stem = nn.Conv2d(3, width, 3, 2, 1)
        self.stages = nn.Sequential(
            Bottleneck(width, width, 1), Bottleneck(width, 2 * width, 2), Bottleneck(2 * width, 4 * width, 2)
        )
        self.fc = nn.Linear(4 * width, classes)

    def forward(self, x):
        return self.fc(self.stages(self.stem(x)).mean((2, 3)))


class Engine:
    def __init__(self, model, loader, cfg):
        self.model, self.loader = model, loader
        self.optimizer = torch.optim.SGD(
            model.parameters(), cfg["lr"], momentum=0.9, nesterov=True, weight_decay=cfg["weight_decay"]
        )
        self.step = 0

    def run_epoch(self, limit):
        total, batches = 0.0, 0
        self.model.train()
        for image, label in self.loader:  # guilty
            loss = F.cross_entropy(self.model(image), label, label_smoothing=0.05)
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            total, batches, self.step = total + loss.item(), batches + 1, self.step + 1
            if self.step >= limit:
                break
        return total / batches

    def fit(self, limit):
        epoch = 0
        while self.step < limit:
            loss = self.run_epoch(limit)
            epoch += 1
            if epoch % 5 == 0:
                print(f"epoch {epoch} step {self.step} loss {loss:.4f}")
