"""Logs as frameworks print them, made for a pace that the tests know."""

from __future__ import annotations

from datetime import datetime, timedelta

_START = datetime(2024, 3, 5, 9, 30, 0)


def clock(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes:02d}:{rest:02d}"


def rate(step_s: float) -> str:
    return f"{1 / step_s:5.2f}it/s" if step_s < 1 else f"{step_s:5.2f}s/it"


def tqdm_bar(n: int, total: int, elapsed_s: float, step_s: float, desc: str = "", postfix: str = "") -> str:
    filled = "█" * (10 * n // total)
    left = clock((total - n) * step_s)
    front = f"{desc}: " if desc else ""
    return (
        f"{front}{100 * n // total:3d}%|{filled:<10}| {n}/{total} [{clock(elapsed_s)}<{left}, {rate(step_s)}{postfix}]"
    )


def tqdm_log(
    step_s: float, steps: int = 200, every: int = 2, end: str = "\r", pause: tuple[int, float] = (0, 0.0)
) -> str:
    """`pause`: after every so many steps, so many seconds."""
    elapsed, lines = 0.0, [f"  0%|          | 0/{steps} [00:00<?, ?it/s]"]
    for n in range(1, steps + 1):
        elapsed += step_s
        if n % every == 0:
            lines.append(tqdm_bar(n, steps, elapsed, step_s, postfix=f", loss={2 / n:.3f}"))
        if pause[0] and n % pause[0] == 0:
            elapsed += pause[1]
    return end.join(lines) + "\n"


def stamp(seconds: float) -> str:
    return (_START + timedelta(seconds=seconds)).strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]


def mmcv_log(
    step_s: float,
    batch: int | None,
    data_s: float = 0.012,
    steps: int = 1000,
    every: int = 50,
    evaluate: int = 0,
    took_s: float = 30.0,
) -> str:
    """By iterations, as mmseg prints them; an evaluation of `took_s` after every `evaluate` steps."""
    now, lines = 0.0, []
    if batch is not None:
        lines = [f"{stamp(0)} - mmseg - INFO - Config:", f"data = dict(samples_per_gpu={batch}, workers_per_gpu=4)"]
    for n in range(1, steps + 1):
        now += step_s
        if n % every == 0:
            lines.append(
                f"{stamp(now)} - mmseg - INFO - Iter [{n}/160000]\tlr: 1.000e-05, eta: 1 day, 2:03:04, "
                f"time: {step_s:.3f}, data_time: {data_s:.3f}, memory: 9876, loss_ce: 2.1234, loss: {3 - n / 1e3:.4f}"
            )
        if evaluate and n % evaluate == 0:
            lines.append(f"{stamp(now)} - mmseg - INFO - per class results:")
            lines.append(f"{stamp(now)} - mmseg - INFO - Iter(val) [{n}/160000] aAcc: 0.71, mIoU: 0.41")
            now += took_s
    return "\n".join(lines) + "\n"


def mmengine_epochs(step_s: float, data_s: float, epochs: int = 2, length: int = 200, every: int = 50) -> str:
    now, lines = 0.0, []
    for epoch in range(1, epochs + 1):
        for n in range(1, length + 1):
            now += step_s
            if n % every == 0:
                when = (_START + timedelta(seconds=now)).strftime("%m/%d %H:%M:%S")
                lines.append(
                    f"{when} - mmengine - INFO - Epoch(train)  [{epoch}][{n:4d}/{length}]  lr: 1.0e-04  eta: 0:10:00  "
                    f"time: {step_s:.4f}  data_time: {data_s:.4f}  memory: 3000  loss: 0.5000  loss_cls: 0.2000"
                )
    return "\n".join(lines) + "\n"


def kair_log(step_s: float, batch: int, steps: int = 2000, every: int = 100) -> str:
    lines = [
        "24-03-05 09:30:00.000 :   task: swinir",
        "    dataloader_num_workers: 16",
        f"    dataloader_batch_size: {batch}",
    ]
    for n in range(every, steps + 1, every):
        when = (_START + timedelta(seconds=n * step_s)).strftime("%y-%m-%d %H:%M:%S.%f")[:-3]
        lines.append(f"{when} : <epoch:{n // 500:3d}, iter:{n:8,d}, lr:1.000e-04> G_loss: 1.234e-02 ")
    return "\n".join(lines) + "\n"


def hugging_face_log(step_s: float, batch: int, steps: int = 300) -> str:
    """tqdm's bar and Trainer's dicts in turn, an evaluation bar of another length in the middle, and the totals."""
    lines = ["***** Running training *****", f"  Instantaneous batch size per device = {batch}"]
    lines.append("Map: 100%|██████████| 25000/25000 [00:10<00:00, 2500.00 examples/s]")
    for n in range(1, steps + 1):
        lines.append("\r" + tqdm_bar(n, steps, n * step_s, step_s))
        if n % 50 == 0:
            lines.append(f"\n{{'loss': {3 - n / steps:.4f}, 'learning_rate': 5e-05, 'epoch': {n / steps:.2f}}}\n")
        if n == steps // 2:
            lines += ["\r" + tqdm_bar(m, 20, 0.1 * m, 0.1) for m in range(1, 21)]
            lines.append("\n{'eval_loss': 0.41, 'eval_runtime': 2.0, 'eval_samples_per_second': 400.0, 'epoch': 0.5}\n")
    lines.append(
        f"\n{{'train_runtime': {steps * step_s:.2f}, 'train_samples_per_second': {batch / step_s:.3f}, "
        f"'train_steps_per_second': {1 / step_s:.3f}, 'train_loss': 1.5, 'epoch': 1.0}}\n"
    )
    return "".join(lines)


def lightning_log(step_s: float, epochs: int = 4, length: int = 50, val_s: float = 6.0) -> str:
    pieces = ["Sanity Checking DataLoader 0: 100%|██████████| 2/2 [00:00<00:00, 20.00it/s]\r"]
    for epoch in range(epochs):
        pieces += [
            tqdm_bar(n, length, n * step_s, step_s, f"Epoch {epoch}", ", v_num=0, train_loss=0.5") + "\r"
            for n in range(1, length + 1)
        ]
        pieces += [tqdm_bar(m, 10, val_s * m / 10, val_s / 10, "Validation DataLoader 0") + "\r" for m in range(1, 11)]
        pieces.append("\n")
    return "".join(pieces)
