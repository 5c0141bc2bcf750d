"""`flatout logs`: what it prints, and one line for every mistake."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flatout import cli
from tests.unit.diagnose import log_texts as texts


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = cli._exit_code(["logs", *words])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_log_is_shown_with_its_speed_and_pauses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "train.log"
    file.write_text(texts.mmcv_log(0.134, 4, evaluate=200))

    code, out, _ = said(capsys, str(file))

    assert code == 0
    assert "samples/s" in out and "evaluation: 4 times, every 200 steps" in out and "9% of the step" in out


def test_two_logs_are_compared_by_samples(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / name for name in ("four.log", "eight.log")]
    files[0].write_text(texts.tqdm_log(1 / 7.45))
    files[1].write_text(texts.tqdm_log(1 / 3.64))

    words = [*map(str, files), "--batch-size", "4", "--batch-size", "8"]
    _, short, _ = said(capsys, *words, "-q")
    _, out, _ = said(capsys, *words, "--json")
    result = json.loads(out)

    assert "2.3% slower" in short
    assert result["schema"] == 1 and len(result["logs"]) == 2
    assert result["comparison"]["by"] == "samples/s"
    assert result["comparison"]["ratio"] == pytest.approx(0.977, abs=0.002)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["missing.log"], "flatout: 'missing.log' cannot be read: No such file or directory"),
        (["plain.txt"], "flatout: 'plain.txt': none of its 1 lines tells a pace"),
        (["train.log", "--batch-size", "0"], "flatout: --batch-size must be at least 1, got 0"),
        (["train.log", "--batch-size", "1", "--batch-size", "2"], "flatout: --batch-size is given 2 times for 1 file"),
        (["train.log", "--pattern", "("], "flatout: --pattern '(' is no regular expression"),
        (["train.log", "--pattern", "(?P<its>x)"], "flatout: 'train.log': --pattern matches none of its"),
        ([], "flatout: Missing argument 'FILE'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    words: list[str],
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("plain.txt").write_text("nothing to see here\n")
    Path("train.log").write_text(texts.tqdm_log(0.1))

    code, out, err = said(capsys, *words)

    assert code == 2 and out == ""
    (only,) = err.splitlines()
    assert only.startswith(line)
