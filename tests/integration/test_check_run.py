"""`flatout check --run` and the source's part in the verdict, on a real run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.integration.running import ENVIRON

OPTIONS = """\
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--num-workers", type=int, default=0)
args = parser.parse_args()
"""
TRAIN = """\
import gc

import torch
from options import args
from torch.utils.data import DataLoader, Dataset


class Waves(Dataset):
    def __len__(self):
        return 640

    def __getitem__(self, index):
        x = torch.rand(512)
        for _ in range(20):
            x = torch.sin(x) + x.flip(0)
        return x, index % 4


device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = torch.nn.Linear(512, 4).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
loader = DataLoader(Waves(), batch_size=16, num_workers=args.num_workers)
total = 0.0
for x, y in loader:
    loss = torch.nn.functional.cross_entropy(model(x.to(device)), y.to(device))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total += loss.item()
    gc.collect()
"""
COLLECT = 1 + TRAIN.splitlines().index("    gc.collect()")


def flatout(cwd: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environ = {**ENVIRON, "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "flatout", *words]
    return subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True, timeout=200)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "options.py").write_text(OPTIONS)
    (folder / "train.py").write_text(TRAIN)
    done = flatout(folder, "run", "--json", "run.json", "train.py")
    assert done.returncode == 0, done.stderr
    return folder


def checked(folder: Path, *words: str) -> dict[str, dict[str, object]]:
    """The findings by code, in order."""
    done = flatout(folder, "check", "--run", "last", "--json", *words)
    assert done.returncode == 1, done.stderr
    found: dict[str, dict[str, object]] = {}
    for one in json.loads(done.stdout)["findings"]:
        found.setdefault(one["code"], one)
    return found


def test_findings_are_ranked_by_what_they_cost_in_the_run(project: Path) -> None:
    found = checked(project)

    assert next(iter(found)) == "HO404"
    collected = found["HO404"]["measured"]
    assert isinstance(collected, dict) and collected["state"] == "costs" and collected["share"] > 0.2
    waits = found["SY301"]["measured"]
    assert isinstance(waits, dict)
    assert (waits["state"], waits["ms_per_step"], waits["words"]) == ("not_measured", None, "the run used no GPU")


def test_every_form_tells_the_cost(project: Path) -> None:
    amount = r"[\d.]+ ms of [\d.]+ ms per step"
    words = ("check", "--run", "last", "--select", "HO404", "--format")

    assert re.search(rf"= measured: {amount} \(\d+%\)", flatout(project, *words, "full").stdout)
    assert re.search(rf"HO404 .*\[{amount}\]\n", flatout(project, *words, "concise").stdout)
    assert re.search(rf"%0Ameasured: {amount}", flatout(project, *words, "github").stdout)
    (result,) = json.loads(flatout(project, *words, "sarif").stdout)["runs"][0]["results"]
    assert result["properties"]["measured"]["state"] == "costs"
    assert result["rank"] == pytest.approx(100 * result["properties"]["measured"]["share"], abs=0.01)
    whole = json.loads(flatout(project, *words, "json").stdout)
    assert whole["run"]["device"] == "cpu" and whole["run"]["step_ms"] > 0 and whole["notices"] == []


def test_the_verdict_says_where_a_value_is_written_and_what_was_not_measured(project: Path) -> None:
    # Not the run's own: on a busy machine its source may have been left out for want of time.
    page = flatout(project, "diagnose", "--json", "again.json").stderr
    report = json.loads((project / "again.json").read_text())

    side = report["source"]
    assert side["files"] == 2
    assert "SY301" in {one["code"] for one in side["not_measured"]}
    # Two processors may be too few for workers: then there is no such finding to explain.
    for one in report["findings"]:
        if one["code"] == "IN101":
            assert [other["words"] for other in one["related"]] == ["the default of --num-workers is 0"]
    assert "in the source not measured by this run: flatout" in page


def test_a_line_is_found_again_after_an_edit(project: Path) -> None:
    source = project / "train.py"
    was = source.stat()
    try:
        source.write_text("# one line more\n" + TRAIN)
        done = flatout(project, "check", "--run", "last", "--select", "HO404", "--json")
    finally:
        source.write_text(TRAIN)
        os.utime(source, ns=(was.st_atime_ns, was.st_mtime_ns))

    whole = json.loads(done.stdout)
    (one,) = whole["findings"]
    assert one["location"]["line"] == COLLECT + 1 and one["measured"]["state"] == "costs"
    assert len(whole["notices"]) == 1 and "train.py" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--run", "nonesuch"], "flatout: no single run 'nonesuch'"),
        (["--run", "last", "--fix"], "flatout: --run ranks findings"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(project: Path, words: list[str], said: str) -> None:
    done = flatout(project, "check", *words)

    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith(said) and len(done.stderr.splitlines()) == 1
