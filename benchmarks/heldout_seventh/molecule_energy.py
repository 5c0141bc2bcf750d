"""A message-passing network that predicts the energy of small molecules from distances between atoms.

expects: IN107
needs: cpu
"""

# mypy: ignore-errors
import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, Dataset

ELEMENTS, CUTOFF = 6, 2.2


class Molecules(Dataset):
    """Random compact clusters; the energy is a pair potential between neighbours."""

    def __init__(self, count, seed):
        g = torch.Generator().manual_seed(seed)
        self.items = []
        for _ in range(count):
            atoms = int(torch.randint(14, 26, (1,), generator=g))
            places = torch.rand(atoms, 3, generator=g) * atoms ** (1 / 3) * 1.3
            kinds = torch.randint(ELEMENTS, (atoms,), generator=g)
            gaps = torch.cdist(places, places)
            edges = ((gaps < CUTOFF) & (gaps > 0)).nonzero()
            near = gaps[edges[:, 0], edges[:, 1]]
            charge = (kinds[edges[:, 0]] - kinds[edges[:, 1]]).abs() / ELEMENTS
            energy = ((near - 1.2).pow(2) * (0.3 + charge)).sum() / atoms
            self.items.append({"kinds": kinds, "places": places, "edges": edges, "energy": energy})

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def collate(molecules):
    kinds, senders, receivers, lengths, owner = [], [], [], [], []
    offset = 0
    for number, molecule in enumerate(molecules):
        places = molecule["places"]
        for sender, receiver in molecule["edges"].tolist():
            senders.append(sender + offset)
            receivers.append(receiver + offset)
            lengths.append((places[sender] - places[receiver]).norm())  # guilty
        kinds.append(molecule["kinds"])
        owner += [number] * len(places)
        offset += len(places)
    energy = torch.stack([molecule["energy"] for molecule in molecules])
    edges = torch.tensor([senders, receivers])
    return torch.cat(kinds), edges, torch.stack(lengths), torch.tensor(owner), energy  # guilty


def collate_joined(molecules):
    sizes = torch.tensor([len(m["kinds"]) for m in molecules])
    starts = (sizes.cumsum(0) - sizes).tolist()
    edges = torch.cat([m["edges"] + start for m, start in zip(molecules, starts)]).T.contiguous()
    places = torch.cat([m["places"] for m in molecules])
    lengths = (places[edges[0]] - places[edges[1]]).norm(dim=1)
    owner = torch.repeat_interleave(torch.arange(len(molecules)), sizes)
    kinds = torch.cat([m["kinds"] for m in molecules])
    return kinds, edges, lengths, owner, torch.stack([m["energy"] for m in molecules])


class Interaction(nn.Module):
    def __init__(self, width, bumps):
        super().__init__()
        self.filter = nn.Sequential(nn.Linear(bumps, width), nn.SiLU(), nn.Linear(width, width))
        self.before = nn.Linear(width, width, bias=False)
        self.after = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))

    def forward(self, x, edges, basis):
        messages = self.before(x).index_select(0, edges[0]) * self.filter(basis)
        gathered = torch.zeros_like(x).index_add(0, edges[1], messages)
        return x + self.after(gathered)


class EnergyNet(nn.Module):
    def __init__(self, width=64, bumps=24, depth=3):
        super().__init__()
        self.register_buffer("centres", torch.linspace(0, CUTOFF, bumps))
        self.embed = nn.Embedding(ELEMENTS, width)
        self.layers = nn.ModuleList([Interaction(width, bumps) for _ in range(depth)])
        self.read = nn.Sequential(nn.Linear(width, width // 2), nn.SiLU(), nn.Linear(width // 2, 1))

    def forward(self, kinds, edges, lengths, owner, molecules):
        basis = torch.exp(-((lengths[:, None] - self.centres) ** 2) * 20)
        x = self.embed(kinds)
        for layer in self.layers:
            x = layer(x, edges, basis)
        atoms = self.read(x).squeeze(1)
        total = torch.zeros(molecules).index_add(0, owner, atoms)
        return total / torch.bincount(owner, minlength=molecules)


def main():
    cli = argparse.ArgumentParser()
    cli.add_argument("--steps", type=int, default=160)
    cli.add_argument("--fixed", action="store_true")
    cli.add_argument("--batch-size", type=int, default=24)
    args = cli.parse_args()
    torch.manual_seed(2)

    data = Molecules(1500, 6)
    join = collate_joined if args.fixed else collate
    loader = DataLoader(data, args.batch_size, shuffle=True, drop_last=True, collate_fn=join)
    model = EnergyNet()
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    step = 0
    while step < args.steps:
        for kinds, edges, lengths, owner, energy in loader:
            predicted = model(kinds, edges, lengths, owner, len(energy))
            loss = F.l1_loss(predicted, energy)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            step += 1
            if step % 40 == 0:
                print(f"step {step} error {loss.item():.4f}")
            if step >= args.steps:
                break


if __name__ == "__main__":
    main()
