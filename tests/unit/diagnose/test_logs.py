"""Training logs of every form: their pace, their pauses, and two of them side by side."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatout.diagnose.logs.pace import compare_logs, summarise_log
from flatout.diagnose.logs.reader import read_log
from flatout.diagnose.logs.readings import Pattern
from flatout.errors import FlatoutError
from flatout.records.logs import LogSummary
from flatout.words import english
from tests.unit.diagnose import log_texts as logs


def read(tmp_path: Path, text: str, pattern: str | None = None, batch: float | None = None) -> LogSummary:
    file = tmp_path / "train.log"
    file.write_text(text)
    return summarise_log(read_log(file, Pattern(pattern) if pattern else None), batch)


def repeated(line: str, first: int = 10, last: int = 300, step: int = 10) -> str:
    return "\n".join(line.format(n=n) for n in range(first, last, step))


@pytest.mark.parametrize(
    ("text", "form", "it_per_s", "batch"),
    [
        (logs.tqdm_log(0.1), "tqdm", 10.0, None),
        (logs.tqdm_log(0.1, end="\n"), "tqdm", 10.0, None),
        (logs.tqdm_log(2.5, 40, 1), "tqdm", 0.4, None),
        (logs.mmcv_log(1 / 7.45, 4), "mmcv", 7.45, 4),
        (logs.mmengine_epochs(0.3, 0.1), "mmcv", 1 / 0.3, None),
        (logs.kair_log(0.5, 8), "KAIR", 2.0, 8),
        (logs.hugging_face_log(0.2, 8), "tqdm", 5.0, 8),
        (logs.lightning_log(0.2), "Lightning", 5.0, None),
        (
            repeated("Epoch 0/9 ━━━━━━╸━━━━ {n}/300 0:01:05 • 0:00:06 2.00it/s v_num: 0 loss: 0.5"),
            "Lightning",
            2.0,
            None,
        ),
        (repeated("step {n} loss=1.2 heatmap=0.3 it/s=2.52"), "key=value", 2.52, None),
        (repeated("step {n}/600 loss 0.1 gaussians 20000 2.5 it/s 5.0 samples/s"), "key=value", 2.5, 2),
        (repeated("step={n} time=80ms data_time=20ms batch_size=16"), "key=value", 12.5, 16),
        (
            repeated("Epoch: [0][{n}/5005]\tTime  0.25 (  0.40)\tData  0.05 ( 0.06)\tLoss 6.9 (7.0)"),
            "key=value",
            4.0,
            None,
        ),
        (
            repeated(
                "Train: 0 [{n}/1251 (  4%)]  Loss: 6.9 (6.9)  Time: 0.313s, 817.10/s  (0.4s, 640/s)  Data: 0.01 (0.05)"
            ),
            "key=value",
            1 / 0.313,
            256,
        ),
        (
            repeated('{{"mode": "train", "iter": {n}, "data_time": 0.02, "loss": 1.2, "time": 0.2}}'),
            "JSON or dict lines",
            5.0,
            None,
        ),
    ],
)
def test_the_pace_of_every_form(tmp_path: Path, text: str, form: str, it_per_s: float, batch: float | None) -> None:
    log = read(tmp_path, text)

    assert log.format == form
    assert log.it_per_s == pytest.approx(it_per_s, rel=0.005)
    assert log.batch_size == batch
    if batch is not None:
        assert log.samples_per_s == pytest.approx(batch * it_per_s, rel=0.005)


def test_the_share_of_data_time(tmp_path: Path) -> None:
    assert read(tmp_path, logs.mmengine_epochs(0.3, 0.1)).data_share == pytest.approx(1 / 3, rel=0.01)


def test_a_bar_of_samples_gives_no_it_per_s_unless_the_batch_is_known(tmp_path: Path) -> None:
    text = repeated(" 10%|█         | {n}/3000 [00:10<01:30, 640.00img/s]")

    alone, told = read(tmp_path, text), read(tmp_path, text, batch=64)

    assert (alone.it_per_s, alone.samples_per_s) == (None, 640.0)
    assert (told.it_per_s, told.samples_per_s) == (pytest.approx(10.0), pytest.approx(640.0))


def test_evaluation_is_found_with_its_rhythm_and_price(tmp_path: Path) -> None:
    log = read(tmp_path, logs.mmcv_log(0.134, 4, evaluate=200, took_s=30.0))

    (pauses,) = log.pauses
    assert (pauses.kind, pauses.count, pauses.every_steps) == ("evaluation", 4, 200)
    assert pauses.mean_s == pytest.approx(30, abs=0.5)
    assert log.it_per_s == pytest.approx(1 / 0.134, rel=0.01)
    assert log.whole_it_per_s is not None and log.whole_it_per_s < 0.6 / 0.134


def test_evaluation_between_bars_counts_once(tmp_path: Path) -> None:
    (pauses,) = read(tmp_path, logs.lightning_log(0.2, epochs=4, val_s=6.0)).pauses

    assert (pauses.kind, pauses.count, pauses.every_steps, pauses.mean_s) == ("evaluation", 3, 50, 6.0)


def test_pauses_that_nobody_explains_are_called_so(tmp_path: Path) -> None:
    (pauses,) = read(tmp_path, logs.tqdm_log(0.1, 400, pause=(100, 20.0))).pauses

    assert (pauses.kind, pauses.count, pauses.every_steps) == ("pause", 3, 100)
    assert pauses.mean_s == pytest.approx(20, abs=1.5)


def test_an_even_log_has_no_pauses_and_no_trend(tmp_path: Path) -> None:
    log = read(tmp_path, logs.mmcv_log(0.134, 4))

    assert not log.pauses and log.trend is not None and log.trend.steady


def test_a_training_that_slows_down_is_seen(tmp_path: Path) -> None:
    text = "\n".join(f"step {n} loss=1.2 it/s={10 - 4 * n / 300:.2f}" for n in range(300))

    trend = read(tmp_path, text).trend

    assert trend is not None and not trend.steady
    assert trend.change == pytest.approx(-0.5, abs=0.05)


def test_a_bigger_batch_is_not_half_as_fast(tmp_path: Path) -> None:
    """The misreading that started it: 7.45 it/s with 4 samples against 3.64 it/s with 8 is -2.3%, not -51%."""
    four = read(tmp_path, logs.mmcv_log(1 / 7.45, 4))
    eight = read(tmp_path, logs.mmcv_log(1 / 3.64, 8))

    result = compare_logs(four, eight)

    assert result is not None and result.by == "samples/s" and result.same_batch is False
    assert result.ratio == pytest.approx(0.977, abs=0.001)
    assert result.it_ratio == pytest.approx(0.489, abs=0.001)
    assert result.hint is not None and "input" in english(result.hint)


def test_without_batch_sizes_the_comparison_says_what_is_missing(tmp_path: Path) -> None:
    result = compare_logs(read(tmp_path, logs.tqdm_log(0.1)), read(tmp_path, logs.tqdm_log(0.2)))

    assert result is not None and result.by == "it/s"
    assert result.hint is not None and "--batch-size" in english(result.hint)


def test_noise_is_no_difference(tmp_path: Path) -> None:
    def noisy(shift: int) -> str:
        return "\n".join(f"step {n} it/s={10 + 2 * (((n + shift) * 7919) % 13 - 6) / 6:.2f}" for n in range(200))

    result = compare_logs(read(tmp_path, noisy(0), batch=4), read(tmp_path, noisy(5), batch=4))

    assert result is not None and result.low <= 1 <= result.high
    assert english(result.sentence).startswith("No clear difference")


def test_a_pattern_reads_any_log(tmp_path: Path) -> None:
    text = "\n".join(f"[{n}] speed>>{n % 3 + 9}.5<< loss~{1 / (n + 1):.3f}" for n in range(50))

    log = read(tmp_path, text, r"\[(?P<step>\d+)\] speed>>(?P<its>[\d.]+)<< loss~(?P<loss>[\d.]+)")

    assert log.it_per_s == 10.5 and log.format == "--pattern" and log.last_step == 49


@pytest.mark.parametrize(
    ("pattern", "words"),
    [("(", "no regular expression"), ("abc", "named group"), (r"(?P<speed>\d+)", "unknown group 'speed'")],
)
def test_a_bad_pattern_is_refused(pattern: str, words: str) -> None:
    with pytest.raises(FlatoutError, match=words):
        Pattern(pattern)


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"", "is empty"), (b"hello\nworld\n", "none of its 2 lines"), (b"\x00\x01", "no text"), (b"\n\n", "is empty")],
)
def test_a_file_that_is_no_log_is_refused_in_one_line(tmp_path: Path, content: bytes, words: str) -> None:
    file = tmp_path / "train.log"
    file.write_bytes(content)

    with pytest.raises(FlatoutError, match=words) as caught:
        read_log(file)

    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("piece", ["a1", "a.b-", "save ", "━", "1%|", "[", "12:", "x=1 "])
def test_no_line_holds_us_up(tmp_path: Path, piece: str) -> None:
    text = piece * 50_000 + " /s\n" + logs.mmcv_log(0.1, 4, steps=200)
    began = time.process_time()

    read(tmp_path, text)

    assert time.process_time() - began < 3.0


def test_a_folder_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.log"):
        with pytest.raises(FlatoutError, match="cannot be read"):
            read_log(path)


@given(st.floats(0.01, 20.0), st.integers(1, 64), st.integers(1, 25))
def test_the_pace_printed_is_the_pace_read(step_s: float, batch: int, every: int) -> None:
    lines = [f"step {n} loss=0.5 time={step_s:.6f} batch_size={batch}" for n in range(0, 40 * every, every)]
    with tempfile.TemporaryDirectory() as folder:
        log = read(Path(folder), "\n".join(lines))

    assert log.it_per_s == pytest.approx(1 / step_s, rel=0.01)
    assert log.samples_per_s == pytest.approx(batch / step_s, rel=0.01)
    assert not log.stalls


@given(st.binary(max_size=400))
def test_whatever_the_bytes_there_is_an_answer_or_a_line(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "train.log"
        file.write_bytes(content)
        try:
            assert summarise_log(read_log(file)).readings > 0
        except FlatoutError as error:
            assert str(error)
