"""Distillation: a small token classifier learns the logits and the inner states of a large one.

expects: other
needs: gpu
"""

# mypy: ignore-errors

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class Encoder(nn.Module):
    def __init__(self, vocab, length, width, depth, classes):
        super().__init__()
        self.embed = nn.Embedding(vocab, width)
        self.position = nn.Parameter(0.02 * torch.randn(length, width))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(
                width, width // 64, 4 * width, dropout=0.0, activation="gelu", batch_first=True, norm_first=True
            )
            for _ in range(depth)
        )
        self.norm = nn.LayerNorm(width)
        self.classify = nn.Linear(width, classes)

    def states(self, ids):
        x = self.embed(ids) + self.position
        kept = []
        for layer in self.layers:
            x = layer(x)
            kept.append(x)
        return kept

    def logits_of(self, state):
        return self.classify(self.norm(state))

    def forward(self, ids):
        return self.logits_of(self.states(ids)[-1])


class Distiller(nn.Module):
    def __init__(self, teacher, student, temperature, fixed):
        super().__init__()
        self.teacher = teacher.requires_grad_(False).train()
        self.student, self.temperature, self.fixed = student, temperature, fixed
        self.lift = nn.Linear(student.position.shape[1], teacher.position.shape[1])

    @torch.no_grad()
    def guidance(self, ids):
        if self.fixed:
            states = self.teacher.states(ids)
            return self.teacher.logits_of(states[-1]), states[-1]
        logits = self.teacher(ids)  # guilty
        hidden = self.teacher.states(ids)[-1]  # guilty
        return logits, hidden

    def forward(self, ids, labels):
        wanted_logits, wanted_state = self.guidance(ids)  # guilty
        state = self.student.states(ids)[-1]
        logits = self.student.logits_of(state).float()
        t = self.temperature
        soft = F.kl_div(
            F.log_softmax(logits / t, -1),
            F.log_softmax(wanted_logits.float() / t, -1),
            log_target=True,
            reduction="batchmean",
        )
        match = F.mse_loss(self.lift(state).float(), wanted_state.float())
        hard = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return hard + t * t * soft / ids.shape[1] + 0.1 * match


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--fixed", action="store_true")
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(17)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    length, batch, wide, deep, small = (16, 4, 128, 2, 64) if args.tiny else (256, 128, 1024, 8, 384)
    teacher = Encoder(2000, length, wide, deep, 32)
    student = Encoder(2000, length, small, 4, 32)
    distiller = Distiller(teacher, student, 2.0, args.fixed).to(device)
    if device == "cuda":
        distiller.teacher.to(torch.bfloat16)
    learned = [p for p in distiller.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(learned, lr=5e-4, fused=True)
    text = torch.randint(0, 2000, (32, batch, length), device=device)
    labels = (text // 63).clamp(max=31)
    for step in range(args.steps):
        i = step % len(text)
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = distiller(text[i], labels[i])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if step % 50 == 0:
            print(f"step {step}, loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
