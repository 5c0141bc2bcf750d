"""Two real runs compared, handed on and taken in, by the command line."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from flatout import cli
from tests.chrome_trace import violations
from tests.integration.running import run
from tests.sarif_rules import broken_rules

SCRIPT = """
import sys, time
import torch

batch, work_s = int(sys.argv[1]), float(sys.argv[2])
model = torch.nn.Linear(8, 8)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


class Samples(torch.utils.data.Dataset):
    def __len__(self):
        return 60 * batch

    def __getitem__(self, index):
        time.sleep(work_s)  # other work of the machine does not make a sleep longer
        return torch.ones(8)


for epoch in range(2):
    for inputs in torch.utils.data.DataLoader(Samples(), batch_size=batch):
        model(inputs).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
"""
SECRETS = ("hf_0123456789abcdefghijABCDEFGHIJ", "correct-horse-battery")


@dataclass(frozen=True)
class Said:
    returncode: int
    stdout: str
    stderr: str


Flatout = Callable[..., Said]


@pytest.fixture
def flatout(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Flatout:
    """The command line, within this process: it is the runs that have to be real ones."""

    def call(*words: str | Path, cwd: Path) -> Said:
        monkeypatch.chdir(cwd)
        code = cli._exit_code([str(word) for word in words])
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return call


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a run `slow` and a run `fast`, four times as fast with batches of twice the size."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "train.py").write_text(SCRIPT)
    given = ["--token", SECRETS[0], "--url", f"https://me:{SECRETS[1]}@host/data"]
    for name, words in (("slow", ["4", "0.008"]), ("fast", ["8", "0.002"])):
        done = run("--out", name, "-q", "train.py", *words, *given, cwd=folder)
        assert done.returncode == 0, done.stderr
    return folder


def test_what_was_made_faster_is_found_faster_with_its_settings(flatout: Flatout, place: Path) -> None:
    done = flatout("compare", "slow", "fast", "--json", "compared.json", cwd=place)

    (one,) = json.loads((place / "compared.json").read_text())["comparisons"]
    assert done.returncode == 0, done.stderr
    assert "FASTER" in done.stdout
    # A sample takes 8 ms and 2 ms, and training adds some to both: more on a busy machine.
    assert one["gain"]["unit"] == "sample" and 1.2 < one["gain"]["low"] < one["gain"]["high"] < 12.0
    changed = {(change["group"], change["name"]): (change["before"], change["after"]) for change in one["settings"]}
    assert changed["loader Samples", "batch_size"] == (4, 8)
    assert changed["command", "word 2"] == ("4", "8")
    assert "batches differ in size" in done.stdout and "one process each" in done.stdout


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["slow", "fast", "--fail-below", "-3%"], 0),
        (["fast", "slow", "--fail-below", "-3%"], 1),
        (["fast", "slow"], 0),
        (["fast", "slow", "--fail-below", "3"], 2),
        (["fast", "none"], 2),
        (["fast"], 2),
    ],
)
def test_the_exit_code_is_for_continuous_integration(
    flatout: Flatout, place: Path, words: list[str], code: int
) -> None:
    done = flatout("compare", "-q", *words, cwd=place)

    assert done.returncode == code
    assert len(done.stderr.splitlines()) == (code == 2)


def test_a_run_is_handed_on_whole_and_without_its_secrets(flatout: Flatout, place: Path, tmp_path: Path) -> None:
    exported = flatout("export", "bundle", "slow", "-o", tmp_path / "run.tgz", cwd=place)
    imported = flatout("import", "run.tgz", cwd=tmp_path)
    listed = flatout("runs", "--json", "--root", ".flatout/runs", cwd=tmp_path)
    judged = flatout("diagnose", "slow", "-q", "--json", "-", cwd=tmp_path)

    assert (exported.returncode, imported.returncode, judged.returncode) == (0, 0, 0), imported.stderr
    data = gzip.decompress((tmp_path / "run.tgz").read_bytes())
    assert not any(secret.encode() in data for secret in SECRETS)
    assert [one["id"] for one in json.loads(listed.stdout)["runs"]] == ["slow"]
    assert json.loads(judged.stdout)["run"]["steps"] == 120
    assert json.loads(judged.stdout)["verdict"]["bound"] == "input"


def test_a_bundle_that_is_none_is_one_line(flatout: Flatout, place: Path, tmp_path: Path) -> None:
    done = flatout("import", place / "train.py", cwd=tmp_path)

    assert done.returncode == 2
    (said,) = done.stderr.splitlines()
    assert "no bundle of a run" in said
    assert list(tmp_path.iterdir()) == []


def test_every_export_is_written(flatout: Flatout, place: Path, tmp_path: Path) -> None:
    for words in (
        ["trace", "-o", tmp_path / "trace.json"],
        ["csv", "-o", tmp_path / "tables"],
        ["sarif", "-o", tmp_path / "findings.sarif"],
    ):
        done = flatout("export", words[0], place / "slow", *words[1:], cwd=place)
        assert done.returncode == 0, done.stderr

    text = (tmp_path / "trace.json").read_text()
    events = json.loads(text)["traceEvents"]
    assert violations(text) == []
    assert any(event["name"] == "data" and event["ph"] == "X" for event in events)
    assert len((tmp_path / "tables" / "steps.csv").read_text().splitlines()) == 121
    found = json.loads((tmp_path / "findings.sarif").read_text())
    assert broken_rules(found) == []
    (results,) = (log["results"] for log in found["runs"])
    places = [result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for result in results]
    assert "train.py" in places
