"""BERT-base on random text, masked language modelling with the Trainer of transformers, in float32."""

# mypy: ignore-errors

import argparse
import json
import statistics
import time
from itertools import pairwise

import torch
from torch.utils.data import Dataset

try:
    import accelerate  # noqa: F401
    from transformers import BertConfig, BertForMaskedLM, Trainer, TrainerCallback, TrainingArguments, set_seed
except ImportError:
    raise SystemExit("bert_trainer.py needs transformers and accelerate: pip install 'transformers[torch]'") from None


class Pace:
    """Times the last half of the steps in five chunks, and waits for the device only where a chunk ends."""

    def __init__(self, steps, device):
        self.chunk = max(1, steps // 10)
        self.first = steps - 5 * self.chunk
        self.device = device
        self.marks = []

    def at(self, step):
        """Before every step, and once after the last."""
        if step >= self.first and (step - self.first) % self.chunk == 0:
            if self.device.type == "cuda":
                torch.cuda.synchronize()
            self.marks.append(time.perf_counter())

    def report(self, batch_size, last_loss):
        chunks = [end - start for start, end in pairwise(self.marks)]
        step_ms = 1e3 * statistics.median(chunks) / self.chunk
        figures = {"samples_per_s": 1e3 * batch_size / step_ms, "step_ms": step_ms, "last_loss": last_loss}
        print(json.dumps(figures))


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--tiny", action="store_true", help="a small model on little data, for a processor")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    if args.steps < 5:
        parser.error(f"--steps must be at least 5, got {args.steps}")
    return args


class PaceCallback(TrainerCallback):
    def __init__(self, pace):
        self.pace = pace

    def on_step_begin(self, args, state, control, **kwargs):
        self.pace.at(state.global_step)

    def on_train_end(self, args, state, control, **kwargs):
        self.pace.at(state.global_step)


class MaskedText(Dataset):
    """Full blocks of tokens without padding, of which 15% are masked once and for all."""

    def __init__(self, blocks, length, vocab):
        tokens = torch.randint(104, vocab, (blocks, length))
        masked = torch.rand(blocks, length) < 0.15
        self.labels = tokens.masked_fill(~masked, -100)
        self.input_ids = tokens.masked_fill(masked, 103)

    def __len__(self):
        return len(self.input_ids)

    def __getitem__(self, index):
        return {"input_ids": self.input_ids[index], "labels": self.labels[index]}


def make_model(tiny):
    if tiny:
        sizes = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 128}
        return BertForMaskedLM(BertConfig(vocab_size=1000, **sizes))
    return BertForMaskedLM(BertConfig())


def make_data(tiny):
    """The size of a batch, and the blocks of text."""
    if tiny:
        return 4, MaskedText(64, 32, 1000)
    return 32, MaskedText(8192, 128, 30522)


def last_loss(trainer):
    """Trainer logs means over `logging_steps`; the one over all steps comes last."""
    logged = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    return logged[-1] if logged else trainer.state.log_history[-1]["train_loss"]


def main():
    args = parse()
    set_seed(0)
    model = make_model(args.tiny)
    batch_size, dataset = make_data(args.tiny)
    training_args = TrainingArguments(
        max_steps=args.steps,
        per_device_train_batch_size=batch_size,
        learning_rate=1e-4,
        weight_decay=0.01,
        logging_steps=20,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=0,
        use_cpu=args.device == "cpu",
    )
    pace = Pace(args.steps, torch.device(args.device))
    trainer = Trainer(model=model, args=training_args, train_dataset=dataset, callbacks=[PaceCallback(pace)])
    trainer.train()
    pace.report(batch_size, last_loss(trainer))


if __name__ == "__main__":
    main()
