"""A trainer with callbacks."""

# mypy: ignore-errors
import json
import os
from dataclasses import asdict, dataclass

import torch


@dataclass
class TrainingArguments:
    output_dir: str
    max_steps: int = 200
    learning_rate: float = 1e-3
    per_device_train_batch_size: int = 8
    logging_steps: int = 20
    save_steps: int = 2
    save_total_limit: int = 2
    max_grad_norm: float = 1.0


class Callback:
    def on_step_end(self, trainer):
        pass


class LoggingCallback(Callback):
    def on_step_end(self, trainer):
        if trainer.step % trainer.args.logging_steps == 0:
            mean = sum(trainer.history[-trainer.args.logging_steps :]) / trainer.args.logging_steps
            print({"loss": round(mean, 4), "step": trainer.step})


class CheckpointCallback(Callback):
    def __init__(self):
        self.kept = []

    def on_step_end(self, trainer):
        if trainer.step % trainer.args.save_steps:
            return
        path = os.path.join(trainer.args.output_dir, f"checkpoint-{trainer.step}")
        os.makedirs(path, exist_ok=True)
        torch.save(trainer.model.state_dict(), os.path.join(path, "model.pt"))  # guilty
        torch.save(trainer.optimizer.state_dict(), os.path.join(path, "optimizer.pt"))  # guilty
        with open(os.path.join(path, "trainer_state.json"), "w") as f:
            json.dump({"step": trainer.step, "args": asdict(trainer.args)}, f)
        self.kept.append(path)
        while len(self.kept) > trainer.args.save_total_limit:
            old = self.kept.pop(0)
            for name in os.listdir(old):
                os.remove(os.path.join(old, name))
            os.rmdir(old)


class Trainer:
    def __init__(self, model, args, train_dataset, callbacks=()):
        self.model, self.args, self.dataset = model, args, train_dataset
        self.callbacks = [LoggingCallback(), CheckpointCallback(), *callbacks]
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
        self.step, self.history = 0, []

    def get_train_dataloader(self):
        return torch.utils.data.DataLoader(
            self.dataset, batch_size=self.args.per_device_train_batch_size, shuffle=True, drop_last=True
        )

    def training_step(self, inputs):
        self.model.train()
        loss = self.model(**inputs)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.args.max_grad_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def train(self):
        loader = self.get_train_dataloader()
        while self.step < self.args.max_steps:
            for inputs in loader:
                self.history.append(self.training_step(inputs).item())
                self.step += 1
                for callback in self.callbacks:
                    callback.on_step_end(self)  # guilty
                if self.step >= self.args.max_steps:
                    break
