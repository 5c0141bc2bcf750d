"""Mistakes on the command line of `flatout tune` cost one line and no trial."""

from __future__ import annotations

from pathlib import Path

import pytest

from flatout.cli import main


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["train.py"], "nothing to tune"),
        (["--knob", "workers=1,2", "gone.py"], "no such script: 'gone.py'"),
        (["--knob", "workers=many", "train.py"], "must be a whole number"),
        (["--knob", "workers", "train.py"], "write it as"),
        (["--knob", "c.yaml:A=1", "train.py"], "does not name 'c.yaml'"),
        (["--knob", "workers=1,2", "--constraint", "memory=3", "train.py"], "--constraint 'memory=3'"),
        (["--knob", "workers=1,2", "--constraint", "metric>3", "train.py"], "--metric"),
        (["--knob", "workers=1,2", "--metric", "PSNR", "train.py"], "one group"),
        (["--knob", "workers=1,2", "--preset", "brave", "train.py"], "brave"),
        (["--knob", "workers=1,2", "--steps", "1", "train.py"], "--steps must be at least 4, got 1"),
        (["--knob", "workers=1,2", "--budget", "soon", "train.py"], "--budget 'soon' is no time"),
        (["--knob", "workers=1,2", "--limit", "0s", "train.py"], "--limit must be above 0, got '0s'"),
        (["--knob", "workers=1,2", "--json", "gone/x.json", "train.py"], "--json 'gone/x.json' cannot be written"),
        (["--knob", "workers=1,2", "--out", "train.py", "train.py"], "train.py' cannot be written"),
        (["--knob", "workers=1,2", "--on", "moon", "train.py"], "--on must be local, ray or ray://host:port"),
        (["--knob", "--window=8,7", "--remedy", "no.such=1", "train.py"], "no remedy is called 'no.such'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    words: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("raise SystemExit('started')")

    with pytest.raises(SystemExit) as ended:
        main(["tune", *words])

    printed = capsys.readouterr()
    assert ended.value.code == 2
    assert says in printed.err and printed.err.count("\n") == 1 and printed.out == ""
    assert not (tmp_path / ".flatout").exists()
