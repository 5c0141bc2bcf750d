"""`flatout run` around real scripts: as far as a script can tell, flatout is not there."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.integration.running import ENVIRON, LIMIT_S, RUN, SRC, run, start, until


def _manifest(folder: Path) -> dict[str, object]:
    (path,) = (folder / ".flatout" / "runs").glob("*/manifest.json")
    return json.loads(path.read_text())  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("pass", 0),
        ("raise SystemExit(3)", 3),
        ("raise ValueError('mine')", 1),
        ("import os; os._exit(7)", 7),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", 143),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", 137),
        ("raise KeyboardInterrupt", 130),
    ],
)
def test_the_exit_code_is_the_scripts(script: Callable[[str], Path], text: str, code: int, tmp_path: Path) -> None:
    done = run(str(script(text)), cwd=tmp_path)

    assert done.returncode == code
    if "mine" in text:
        assert b"ValueError: mine" in done.stderr
    assert _manifest(tmp_path)["exit_code"] == code
    assert _manifest(tmp_path)["state"] == "finished"


def test_stdout_is_byte_identical(script: Callable[[str], Path], tmp_path: Path) -> None:
    path = script("import os, sys\nprint(sys.flags, __name__, __file__)\nos.write(1, bytes(range(256)))")
    bare = subprocess.run([sys.executable, str(path)], cwd=tmp_path, env=ENVIRON, capture_output=True)

    done = run(str(path), cwd=tmp_path)

    assert done.stdout == bare.stdout


def test_odd_arguments_arrive_unchanged(script: Callable[[str], Path], tmp_path: Path) -> None:
    odd = [b"a b", b"c\nd", b"\xff\xfe", b"", b"--out", b"--", b"-m", b"-q", "ü".encode()]
    script("import os, sys\nos.write(1, b'\\0'.join(map(os.fsencode, sys.argv)))")

    done = run(b"--no-telemetry", b"script.py", *odd, cwd=tmp_path)

    assert done.stdout.split(b"\0") == [b"script.py", *odd]


def test_odd_paths_work(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path) + b"/a b\n\xff"
    os.mkdir(folder)
    with open(folder + b"/s cript\xfe.py", "w") as file:
        file.write("print('fine')")

    done = run(b"s cript\xfe.py", cwd=Path(os.fsdecode(folder)))

    assert (done.returncode, done.stdout) == (0, b"fine\n")


def test_stdin_goes_through(script: Callable[[str], Path], tmp_path: Path) -> None:
    path = script("import sys; sys.stdout.buffer.write(sys.stdin.buffer.read()[::-1])")

    assert run(str(path), cwd=tmp_path, input=b"abc\xff").stdout == b"\xffcba"


def test_closed_streams_stay_closed(script: Callable[[str], Path], tmp_path: Path) -> None:
    path = script("import sys; open('seen', 'w').write(repr([s is None for s in (sys.stdin, sys.stdout, sys.stderr)]))")
    command = " ".join([*RUN, str(path), "<&-", ">&-", "2>&-"])

    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, env=ENVIRON)

    assert done.returncode == 0
    assert (tmp_path / "seen").read_text() == "[True, True, True]"


def test_inherited_descriptors_go_through(script: Callable[[str], Path], tmp_path: Path) -> None:
    path = script("import os; print(os.read(7, 9))")
    (tmp_path / "data").write_text("seven")

    done = subprocess.run(
        ["sh", "-c", " ".join([*RUN, str(path), "7<data"])], cwd=tmp_path, env=ENVIRON, capture_output=True
    )

    assert done.stdout == b"b'seven'\n"


def test_a_read_only_folder_is_no_obstacle(script: Callable[[str], Path], tmp_path: Path) -> None:
    path = script("import os; print(os.getcwd())")

    done = run(str(path), cwd=Path("/proc"), temporary=tmp_path)  # there not even root can make a folder

    assert (done.returncode, done.stdout) == (0, b"/proc\n")
    assert b"is not writable" in done.stderr and b"flatout-" in done.stderr


def test_modules_of_the_users_do_not_become_ours(script: Callable[[str], Path], tmp_path: Path) -> None:
    for name in ("random", "numpy", "click", "rich"):
        (tmp_path / f"{name}.py").write_text("raise RuntimeError('mine')")

    done = run(str(script("print('fine')")), cwd=tmp_path)

    assert (done.returncode, done.stdout) == (0, b"fine\n")
    assert b"No training step was seen." in done.stderr


def test_a_place_that_takes_no_files_is_no_obstacle(script: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / ".flatout").write_text("in the way")

    done = run(str(script("print('fine')")), cwd=tmp_path, temporary=tmp_path)

    assert (done.returncode, done.stdout) == (0, b"fine\n")
    assert b"is not writable" in done.stderr


def test_a_script_without_training_is_told_so_plainly(script: Callable[[str], Path], tmp_path: Path) -> None:
    done = run(str(script("pass")), cwd=tmp_path)

    assert b"No training step was seen." in done.stderr


def test_quiet_says_nothing(script: Callable[[str], Path], tmp_path: Path) -> None:
    done = run("-q", str(script("print(1)")), cwd=tmp_path)

    assert (done.stdout, done.stderr) == (b"1\n", b"")


def test_out_and_json_go_where_they_are_told(script: Callable[[str], Path], tmp_path: Path) -> None:
    done = run("--out", "here", "--json", "r.json", str(script("pass")), cwd=tmp_path)

    assert done.returncode == 0
    assert (tmp_path / "here" / "manifest.json").exists() and not (tmp_path / ".flatout").exists()
    assert json.loads((tmp_path / "r.json").read_text())["schema"] == 1
    assert json.loads((tmp_path / "here" / "summary.json").read_text())["schema"] == 1


def test_json_on_stdout_follows_the_scripts_output(script: Callable[[str], Path], tmp_path: Path) -> None:
    done = run("--json", "-", str(script("print('mine')")), cwd=tmp_path)

    first, _, rest = done.stdout.partition(b"\n")
    assert first == b"mine"
    assert json.loads(rest)["run"]["steps"] == 0


def test_modules_and_commands(tmp_path: Path) -> None:
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "__init__.py").touch()
    (tmp_path / "pkg" / "train.py").write_text("import sys; print(__name__, sys.argv[1:])")

    assert run("-m", "pkg.train", "--lr", "1", cwd=tmp_path).stdout == b"__main__ ['--lr', '1']\n"
    assert run("-q", sys.executable, "-u", "-m", "pkg.train", cwd=tmp_path).stdout == b"__main__ []\n"
    assert run("--", "echo", "-n", "x", cwd=tmp_path).stdout == b"x"


def test_nothing_of_ours_is_on_the_scripts_path(script: Callable[[str], Path], tmp_path: Path) -> None:
    path = script("import sys; print(sys.path); print('flatout' in sys.modules)")
    environ = {k: v for k, v in ENVIRON.items() if k != "PYTHONPATH"}
    code = f"import sys; sys.path.insert(0, {SRC!r}); from flatout.cli import main; main(['run', '-q', {str(path)!r}])"

    bare, done = (
        subprocess.run([sys.executable, *words], cwd=tmp_path, env=environ, capture_output=True, text=True)
        for words in ([str(path)], ["-c", code])
    )

    (own, _), (watched, loaded) = (one.stdout.splitlines() for one in (bare, done))
    added = [entry for entry in eval(watched) if entry not in eval(own)]
    assert all(entry.endswith("attach/bootstrap") for entry in added)
    assert loaded == "False"


def test_a_run_directory_that_vanishes_costs_the_verdict_only(script: Callable[[str], Path], tmp_path: Path) -> None:
    path = script("import os, shutil\nshutil.rmtree(os.environ['FLATOUT_RUN_DIR'])\nprint('fine')\nraise SystemExit(6)")

    done = run(str(path), cwd=tmp_path)

    assert (done.returncode, done.stdout) == (6, b"fine\n")
    (line,) = done.stderr.splitlines()
    assert line.startswith(b"flatout: no verdict (")


def test_a_json_file_that_cannot_be_written_costs_a_line(script: Callable[[str], Path], tmp_path: Path) -> None:
    done = run("--json", "no/such/folder/x.json", str(script("pass")), cwd=tmp_path)

    assert done.returncode == 0
    assert b"'no/such/folder/x.json' could not be written" in done.stderr


def test_an_interpreter_that_flatout_cannot_enter_is_named(script: Callable[[str], Path], tmp_path: Path) -> None:
    done = run(sys.executable, "-S", str(script("print('fine')")), cwd=tmp_path)

    assert (done.returncode, done.stdout) == (0, b"fine\n")
    assert b"python was started with -S" in done.stderr


def test_an_existing_run_is_not_written_over(script: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "here" / "proc").mkdir(parents=True)
    (tmp_path / "here" / "proc" / "1-1.rec").touch()

    done = run("--out", "here", str(script("print('ran')")), cwd=tmp_path)

    assert (done.returncode, done.stdout) == (2, b"")
    assert b"already holds a run: give another --out" in done.stderr


def test_no_secret_is_stored(script: Callable[[str], Path], tmp_path: Path) -> None:
    secret = "hunter2hunter2hunter2"
    environ = {
        **ENVIRON,
        "NCCL_AUTH_TOKEN": secret,
        "WANDB_API_KEY": secret,
        "TORCH_HOME": f"https://me:{secret}@host/x",
    }
    words = ["--api-key", secret, f"--password={secret}", f"https://me:{secret}@example.org/?token={secret}"]

    subprocess.run([*RUN, "--json", "r.json", str(script("pass")), *words], cwd=tmp_path, env=environ, check=True)

    stored = [file for file in tmp_path.rglob("*") if file.is_file() and file.name != "script.py"]
    assert len(stored) >= 4
    assert [file for file in stored if secret.encode() in file.read_bytes()] == []


_TRAINING = """
import signal, sys, time, torch
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)

def leave_ctrl_c_to_the_parent(worker):
    # A worker that ends by it is an error to torch, which may replace the interrupt on its way up.
    signal.signal(signal.SIGINT, signal.SIG_IGN)

class Numbers(Dataset):
    def __len__(self):
        return 1_000_000
    def __getitem__(self, i):
        time.sleep(0.001)
        return torch.full((4,), float(i))

if __name__ == "__main__":
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    for n, x in enumerate(DataLoader(Numbers(), 8, num_workers=2, worker_init_fn=leave_ctrl_c_to_the_parent)):
        model(x).sum().backward()
        optimizer.step()
        if n == 20:
            print("going", flush=True)
            if "wait" in sys.argv:
                time.sleep(60)
        if n == int(sys.argv[1]):
            break
    print("done", flush=True)
"""


def test_a_training_run_is_recorded_and_judged(script: Callable[[str], Path], tmp_path: Path) -> None:
    done = run("--json", "r.json", str(script(_TRAINING)), "60", cwd=tmp_path)

    result = json.loads((tmp_path / "r.json").read_text())
    assert done.returncode == 0, done.stderr
    assert result["run"]["steps"] == 61
    assert sum(phase["share"] for phase in result["phases"].values()) == pytest.approx(1.0, abs=0.01)
    assert result["environment"]["kernel"] == os.uname().release
    words = done.stderr.decode()
    assert "Where the step time goes" in words and "samples/s" in words and "Overhead" in words


def test_the_parent_killed_leaves_the_training_alone(script: Callable[[str], Path], tmp_path: Path) -> None:
    process = start(str(script(_TRAINING)), "200", cwd=tmp_path)
    assert process.stdout is not None
    assert process.stdout.readline() == b"going\n"

    process.send_signal(signal.SIGKILL)

    # The pipe ends when the script and its workers have.
    assert process.communicate(timeout=LIMIT_S)[0] == b"done\n"


@pytest.mark.durations
def test_ctrl_c_leaves_no_children_behind(script: Callable[[str], Path], tmp_path: Path) -> None:
    # The script waits in its own code: while a batch arrives torch may lose an interrupt (in StorageWeakRef.__del__).
    process = start(str(script(_TRAINING)), "1000000", "wait", cwd=tmp_path, start_new_session=True)
    assert process.stdout is not None
    assert process.stdout.readline() == b"going\n"

    # To the whole group, as a terminal does it.
    os.killpg(process.pid, signal.SIGINT)
    began = time.monotonic()
    _, stderr = process.communicate(timeout=LIMIT_S)

    until(lambda: not _members(process.pid))
    assert time.monotonic() - began < 5.0 + 5.0  # five for the children to go, the rest for the verdict
    assert process.returncode == 130, stderr


def test_nothing_is_compiled_from_text_at_exit(script: Callable[[str], Path], tmp_path: Path) -> None:
    # CPython then forgets that a script ended by Ctrl-C, and the exit code is 1.
    done = run(str(script(_COMPILES)), cwd=tmp_path)

    assert (done.returncode, done.stdout) == (0, b"done\n"), done.stderr


_COMPILES = """
import sys, torch

compiled = []

def note(event, details):
    if compiled and event == "compile":
        print(details, flush=True)

sys.addaudithook(note)
table = torch.nn.Embedding(100, 4).double()
model = torch.nn.Linear(4, 1).double()
optimizer = torch.optim.SGD([*model.parameters(), *table.parameters()], lr=1e-9)
for n in range(40):
    model(table(torch.arange(8))).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print("done", flush=True)
compiled.append("from here on")
"""


def _members(group: int) -> list[int]:
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                fields = Path("/proc", entry, "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[2]) == group and fields[0] != "Z":
                found.append(int(entry))
    return found
