"""Predicts whether a price goes up; grown over some afternoons and never tidied.

expects: none
needs: cpu
"""

# mypy: ignore-errors

import copy
import gc
import sys
import time

import numpy as np
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(1234)
np.random.seed(1234)
STEPS = int(sys.argv[sys.argv.index("--steps") + 1]) if "--steps" in sys.argv else 220
LOSSES = []
BEST = 1e9
BEST_WEIGHTS = None


class MyDataset(Dataset):
    def __init__(self):
        x = np.cumsum(np.random.randn(9000), 0)
        self.data = []
        for i in range(64, 8900):
            w = x[i - 64 : i]
            self.data.append(((w - w.mean()) / (w.std() + 1e-6), 1 if x[i] > x[i - 1] else 0))

    def __len__(self):
        return len(self.data)

    def __getitem__(self, idx):
        return torch.tensor(self.data[idx][0]).float(), torch.tensor(self.data[idx][1]).long()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l1 = nn.LSTM(1, 48, 1, batch_first=True)
        self.l2 = nn.Linear(48, 128)
        self.heads = nn.ModuleList([nn.Linear(128, 2) for i in range(3)])

    def forward(self, x):
        x = x.unsqueeze(2)
        x, (_h, _c) = self.l1(x)
        x = torch.relu(self.l2(x[:, -1].clone()))
        outs = []
        for head in self.heads:
            outs.append(head(x))
        return sum(outs) / len(outs)


time.sleep(0.2)  # let the disk settle
ds = MyDataset()
dl = DataLoader(ds, batch_size=32, shuffle=True, num_workers=0)
net = Net()
crit = nn.CrossEntropyLoss()
opt = torch.optim.Adam(net.parameters(), lr=0.001)
counter = 0
done = False
while not done:
    for x, y in dl:
        for g in opt.param_groups:
            g["lr"] = 0.001 * (0.999**counter)
        opt.zero_grad()
        pred = net(x)
        loss = crit(pred, y)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 5)
        opt.step()
        LOSSES.append(float(loss.item()))
        acc = (pred.argmax(1) == y).float().mean().item()
        counter = counter + 1
        if counter % 40 == 0:
            avg = sum(LOSSES[-40:]) / 40
            print("iter " + str(counter) + " loss " + str(round(avg, 4)) + " acc " + str(acc))
            if avg < BEST:
                BEST = avg
                BEST_WEIGHTS = copy.deepcopy(net.state_dict())
        if counter >= STEPS:
            done = True
            break
del ds, dl
gc.collect()
print("finished, best", BEST)
