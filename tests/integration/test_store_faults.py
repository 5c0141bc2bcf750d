"""The store where it hurts: a full disk, a directory that cannot be written, secrets, a million steps."""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from flatout.attach.recorder import Recorder
from flatout.diagnose.summary import summarise_run
from flatout.store.directory import create_run
from flatout.store.manifest import Manifest
from flatout.store.recording import read_recording
from flatout.store.rows import RowWriter, read_rows
from flatout.store.run import StoredRun
from tests.integration.watching import Watch
from tests.unit.making import Making, body, facts, step_body

NOBODY = 65534
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 256 KiB."""
    mount = tmp_path / "disk"
    mount.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(b"tmpfs", str(mount).encode(), b"tmpfs", 0, b"size=256k") != 0:
        pytest.skip(f"a tmpfs cannot be mounted here ({os.strerror(ctypes.get_errno())})")
    yield mount
    libc.umount2(str(mount).encode(), 2)


def test_on_a_full_disk_recording_stops_quietly_and_goes_on_when_there_is_room(small_disk: Path) -> None:
    path = small_disk / "100-1.rec"
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(100_000))
    recorder = Recorder(str(path), facts(), 16384)
    index = 0
    while recorder.dropped < 4096:
        recorder.append(step_body(index, index, 1))
        index += 1
    written = index - 4096
    kept = read_recording(path)
    assert kept.column("step", "index").tolist() == list(range(written))
    assert kept.lost.dropped_records == 4096

    ballast.unlink()
    for _ in range(100):
        recorder.append(step_body(index, index, 1))
        index += 1
    recorder.close()

    recording = read_recording(path)
    assert recording.lost.dropped_records == 4096 and recording.count("gap") == 1
    assert recording.column("step", "index").tolist() == [*range(written), *range(written + 4096, index)]


def test_on_a_full_disk_rows_are_dropped_counted_and_taken_up_again(small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(200_000))
    with closing(RowWriter(small_disk / "gpu.rows", ("t_s", "x"))) as writer:
        count = 0
        while writer.dropped < 50:
            writer.append((count, None))
            count += 1
        ballast.unlink()
        writer.append((count, 1.0))

    rows = read_rows(small_disk / "gpu.rows")

    assert rows.lost == writer.dropped == 50
    assert rows.column("t_s").tolist() == [*range(count - 50), count]


def test_a_disk_that_is_full_from_the_start_is_an_error_of_the_constructor_only(small_disk: Path) -> None:
    (small_disk / "ballast").write_bytes(bytes(250_000))

    with pytest.raises(OSError):
        Recorder(str(small_disk / "1-1.rec"), facts())


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that other users may enter; pytest's own are private."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


def test_a_read_only_directory_falls_back_to_a_temporary_one(open_folder: Path) -> None:
    # Root is stopped by no mode, so the test is made as somebody else where we are root.
    read_only, temporary = open_folder / "mine", open_folder / "tmp"
    read_only.mkdir(mode=0o555)
    temporary.mkdir()
    temporary.chmod(0o777)
    pid = os.fork()
    if pid == 0:
        try:
            os._exit(_create_in(read_only, temporary))
        except BaseException as error:
            sys.stderr.write(f"{type(error).__name__}: {error}\n")
            os._exit(99)

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    (path,) = temporary.glob("flatout-*/runs/*")
    manifest = json.loads((path / "manifest.json").read_text())
    assert any("not writable" in notice and str(read_only) in notice for notice in manifest["notices"])


def _create_in(read_only: Path, temporary: Path) -> int:
    if os.getuid() == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    tempfile.tempdir = str(temporary)
    os.chdir(read_only)
    run = create_run("train.py")
    run.begin(Manifest(run.id, ("train.py",), str(read_only), time.time()))
    return 0


SECRETS = {
    "argv": "Pl4ntedArgv9x7Qm2",
    "option": "Pl4ntedOption3kD8",
    "shape": "hf_Pl4ntedShapeAbCdEfGhIjKlMn",
    "environment": "Pl4ntedEnviron5tR1",
    "url": "Pl4ntedUrl6wZ4",
    "query": "Pl4ntedQuery8vB3",
    "path": "Pl4ntedDataPath2nH6",
}
SCRIPT = """
import os, sys, torch
from torch.utils.data import DataLoader, Dataset

class Remote(Dataset):
    def __init__(self):
        self.root = "https://me:%(path)s@host/data"
        self.paths = ["https://host/data?token=%(path)s"]
    def __len__(self):
        return 40
    def __getitem__(self, i):
        return torch.ones(4)

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for batch in DataLoader(Remote(), batch_size=4):
    model(batch).sum().backward()
    optimizer.step()
"""


def test_planted_secrets_are_in_no_stored_byte(tmp_path: Path, watch: Watch) -> None:
    # The data source's own words are the script's, so they are built at run time and stand in no source line.
    script = tmp_path / "train.py"
    script.write_text(SCRIPT % {"path": '" + os.environ["MY_PASSWORD"] + "'})
    words = (
        script,
        f"--api-key={SECRETS['argv']}",
        "--hub-token",
        SECRETS["option"],
        SECRETS["shape"],
        f"s3://user:{SECRETS['url']}@bucket/x",
        f"https://host/x?X-Amz-Signature={SECRETS['query']}&page=1",
    )

    watched = watch(*words, WANDB_API_KEY=SECRETS["environment"], MY_PASSWORD=SECRETS["path"])

    assert watched.returncode == 0 and watched.json["run"]["steps"] == 10
    files = [path for path in watched.run_dir.rglob("*") if path.is_file()]
    assert len(files) >= 3
    for path in files:
        stored = path.read_bytes()
        for where, secret in SECRETS.items():
            assert secret.encode() not in stored, f"{where} in {path.name}"


@pytest.mark.timing
def test_a_million_steps_are_summarised_in_seconds(tmp_path: Path) -> None:
    steps = 1_000_000
    making = Making(tmp_path)
    process = making.process()
    append, pack = process.append, step_body(0, 0, 1)
    head, tail = pack[:4], pack[28:]
    for i in range(steps):
        append(
            head + i.to_bytes(8, "little") + (i * 2_000_000).to_bytes(8, "little") + b"\x80\x84\x1e" + bytes(5) + tail
        )
    for i in range(0, steps, 100):
        append(body("device", i, 0.1, 0.5, 0.5, 0.1, 0.1, 1.3, 4, 0))
    process.end()
    size = Path(process.path).stat().st_size
    run = making.stored()

    begun = time.process_time()
    report = summarise_run(StoredRun(run.path))
    took_s = time.process_time() - begun

    assert report.run.steps == steps
    assert report.throughput.steps_per_s == pytest.approx(500.0)
    assert size <= 200 * steps
    # CPU time, because the machine may be shared; nothing in it waits.
    assert took_s < 5.0, took_s


def test_runs_are_listed_and_pruned_from_the_command_line(tmp_path: Path) -> None:
    for _ in range(3):
        making = Making(tmp_path / "runs", ("train.py", "--token", "Pl4nted"))
        process = making.process()
        process.steps(5)
        process.end()
        making.stored()
    (tmp_path / "runs" / "zz").mkdir()
    (tmp_path / "runs" / "zz" / "manifest.json").write_text('{"schema": 99}')

    table = _flatout("runs", "--root", str(tmp_path / "runs"))
    listed = json.loads(_flatout("runs", "--json", "--root", str(tmp_path / "runs")).stdout)
    pruned = json.loads(_flatout("runs", "--prune", "--keep", "2", "--json", "--root", str(tmp_path / "runs")).stdout)

    assert table.returncode == 0 and table.stdout.count("train.py") == 3 and "unreadable" in table.stdout
    assert [line["state"] for line in listed["runs"]] == ["finished", "finished", "finished", "broken"]
    assert "Pl4nted" not in json.dumps(listed)
    # The unreadable one has no time, so it stands last; it is kept, and does not count: two that can be read are left.
    assert len(pruned["pruned"]) == 1
    assert (tmp_path / "runs" / "zz").exists()
    assert _flatout("runs", "--prune", "--root", str(tmp_path)).returncode == 2
    wrong = _flatout("runs", "--prune", "--older-than", "soon", "--root", str(tmp_path))
    assert wrong.returncode == 2 and "'soon'" in wrong.stderr and "Traceback" not in wrong.stderr


def _flatout(*args: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "flatout", *args], capture_output=True, text=True, check=False, timeout=200
    )
