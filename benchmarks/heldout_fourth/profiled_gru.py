"""Language model on words with a GRU and truncated backpropagation, and traces to look at afterwards.

expects: HO406
needs: cpu
"""

# mypy: ignore-errors
import argparse
import math
import os
import tempfile

import torch
import torch.nn as nn
from torch.profiler import ProfilerActivity, profile, schedule

parser = argparse.ArgumentParser(description="word language model")
parser.add_argument("--steps", type=int, default=150)
parser.add_argument("--fixed", action="store_true")
parser.add_argument("--bptt", type=int, default=10)
parser.add_argument("--batch_size", type=int, default=48)
parser.add_argument("--nhid", type=int, default=128)
parser.add_argument("--clip", type=float, default=0.25)
args = parser.parse_args()
args.traces = tempfile.TemporaryDirectory()
torch.manual_seed(1111)


def markov(n, vocab=800):
    g = torch.Generator().manual_seed(0)
    nxt = torch.randint(0, vocab, (vocab, 4), generator=g).tolist()
    pick = torch.randint(0, 4, (n,), generator=g).tolist()
    out = [0]
    for k in pick:
        out.append(nxt[out[-1]][k])
    return torch.tensor(out)


def batchify(data, bsz):
    n = len(data) // bsz
    return data[: n * bsz].view(bsz, -1).t().contiguous()


class CellStack(nn.Module):
    """A stack of cells with layer norm between them, which the fused kernels do not offer."""

    def __init__(self, ntoken, nhid, layers=2):
        super().__init__()
        self.encoder = nn.Embedding(ntoken, nhid)
        self.cells = nn.ModuleList(nn.GRUCell(nhid, nhid) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(nhid) for _ in range(layers))
        self.decoder = nn.Linear(nhid, ntoken)

    def forward(self, words, hidden):
        outs, hidden = [], list(hidden)
        for x in self.encoder(words):
            for k, (cell, norm) in enumerate(zip(self.cells, self.norms, strict=True)):
                hidden[k] = cell(x, hidden[k])
                x = norm(hidden[k])
            outs.append(x)
        return self.decoder(torch.stack(outs)), hidden


def keep(prof):
    prof.export_chrome_trace(os.path.join(args.traces.name, f"step{prof.step_num:05d}.json"))  # guilty


def tracer():
    repeat = 1 if args.fixed else 0
    plan = schedule(wait=0, warmup=1, active=2, repeat=repeat)  # guilty
    return profile(activities=[ProfilerActivity.CPU], schedule=plan, record_shapes=True, on_trace_ready=keep)  # guilty


train_data = batchify(markov(60_000), args.batch_size)
model = CellStack(800, args.nhid)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=2.0)
hidden = [torch.zeros(args.batch_size, args.nhid) for _ in range(2)]
prof = tracer()
prof.start()  # guilty
pos, total = 0, 0.0
for step in range(1, args.steps + 1):
    if pos + args.bptt + 1 >= len(train_data):
        pos = 0
    data, targets = train_data[pos : pos + args.bptt], train_data[pos + 1 : pos + 1 + args.bptt]
    hidden = [h.detach() for h in hidden]
    output, hidden = model(data, hidden)
    loss = criterion(output.flatten(0, 1), targets.flatten())
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), args.clip)
    optimizer.step()
    prof.step()  # guilty
    total += loss.item()
    pos += args.bptt
    if step % 30 == 0:
        print(f"| step {step} | loss {total / 30:.3f} | ppl {math.exp(total / 30):.1f}")
        total = 0.0
prof.stop()
