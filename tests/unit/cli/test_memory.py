"""`flatout memory`: what it prints, its exit code, and one line for every mistake."""

from __future__ import annotations

import json

import pytest

from flatout import cli


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    code = cli._exit_code(["memory", *words])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_small_loader_fits(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = said(capsys, "--sample-bytes", "1kB", "--workers", "1", "--json")
    value = json.loads(out)

    assert value["schema"] == 1 and value["need"]["batches_in_flight"] == 4
    assert value["need"]["shm_bytes"] == 4000


def test_a_cache_in_each_worker_is_multiplied(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = said(capsys, "--shape", "32x720x1280", "--workers", "36", "--ranks", "3", "--cache", "290GB")

    assert code == 1
    assert "× 36 workers × 3 ranks" in out and "does not fit" in out and "Fits here" in out


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "flatout: how big is a sample? give --sample-bytes"),
        (["--sample-bytes", "much"], "flatout: --sample-bytes must be a size such as"),
        (["--sample-bytes", "0"], "flatout: --sample-bytes must be above 0, got '0'"),
        (["--sample-bytes", "1MB", "--workers", "-1"], "flatout: --workers must be at least 0, got -1"),
        (["--sample-bytes", "1MB", "--shape", "3x4"], "flatout: --sample-bytes and --shape say the same"),
        (["no-such-run"], "flatout: "),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(words: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = said(capsys, *words)

    assert code == 2 and out == ""
    (only,) = err.splitlines()
    assert only.startswith(line)
