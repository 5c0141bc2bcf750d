"""Every way a training is started, and every way flatout finds itself in it."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from flatout.launch.process import BOOTSTRAP
from tests.integration.watching import SCRIPTS, Ran, Run, Watch


@pytest.fixture(scope="module")
def bare(bare_once: Run) -> Ran:
    return bare_once("epoch_loop.py")


FORMS = {
    "script": ["epoch_loop.py"],
    "python": ["python", "epoch_loop.py"],
    "python -u": ["python", "-u", "epoch_loop.py"],
    "interpreter": [sys.executable, "-X", "faulthandler", "epoch_loop.py"],
    "subprocess": ["subprocess_parent.py"],
    "torchrun": ["torchrun", "--standalone", "--nproc-per-node", "1", "epoch_loop.py"],
}


LIKE_ANOTHER = ("python", "python -u", "interpreter")


@pytest.mark.parametrize(
    "form", [pytest.param(form, marks=[pytest.mark.variant] if form in LIKE_ANOTHER else []) for form in FORMS]
)
def test_the_training_is_watched_and_unchanged(watch_once: Watch, bare: Ran, form: str) -> None:
    seen = watch_once(*FORMS[form])

    assert seen.returncode == 0, seen.stderr
    assert seen.losses == bare.losses
    assert seen.step_count == seen.json["run"]["steps"] == 21


def test_a_module(watch: Watch, bare: Ran, tmp_path: Path) -> None:
    package = tmp_path / "pkg"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "train.py").write_text((SCRIPTS / "epoch_loop.py").read_text())

    seen = watch("-m", "pkg.train", cwd=tmp_path, PYTHONPATH=joined(SCRIPTS))

    assert seen.losses == bare.losses
    assert seen.step_count == 21


def test_a_console_script_on_path(watch: Watch, bare: Ran, tmp_path: Path) -> None:
    script = tmp_path / "bin" / "train-it"
    script.parent.mkdir()
    script.write_text(f"#!{sys.executable}\nimport runpy\nrunpy.run_path({str(SCRIPTS / 'epoch_loop.py')!r})\n")
    script.chmod(0o755)
    path = os.pathsep.join([str(script.parent), os.path.dirname(sys.executable), os.environ["PATH"]])

    seen = watch("train-it", PATH=path, PYTHONPATH=joined(SCRIPTS))

    assert seen.losses == bare.losses
    assert seen.step_count == 21


def test_the_users_environment_needs_no_flatout(watch: Watch, bare: Ran, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    site = next((venv / "lib").glob("python*/site-packages"))
    # Entries of a .pth are plain folders: torch is found there, an editable install of flatout is not.
    (site / "torch.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    script = tmp_path / "train.py"
    ours = "('flatout', 'click', 'rich')"
    told = f"\nimport sys\nprint('OURS', [m for m in sys.modules if m.split('.')[0] in {ours}])\n"
    script.write_text((SCRIPTS / "epoch_loop.py").read_text() + told)

    seen = watch(str(venv / "bin" / "python"), script, PYTHONPATH=joined(SCRIPTS))

    assert seen.returncode == 0, seen.stderr
    assert seen.losses == bare.losses
    assert seen.step_count == 21
    assert "OURS []" in seen.stdout


def test_flatout_in_flatout_counts_once(watch: Watch, bare: Ran, tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    report = tmp_path / "inner.json"
    command = [sys.executable, "-m", "flatout", "run", "--out", inner, "--json", report, "--", "epoch_loop.py"]

    seen = watch(*command, cwd=tmp_path)

    assert seen.returncode == 0, seen.stderr
    assert seen.losses == bare.losses
    assert '"steps": 21' in report.read_text()
    assert seen.json["run"]["steps"] in (0, 21)


@pytest.mark.variant
def test_the_bootstrap_folder_twice_on_the_path(watch: Watch, bare: Ran) -> None:
    seen = watch("epoch_loop.py", PYTHONPATH=joined(BOOTSTRAP, BOOTSTRAP))

    assert seen.losses == bare.losses
    assert seen.step_count == 21


def test_the_users_own_sitecustomize_still_runs(watch: Watch, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nprint('mine', __name__, __file__)\nsys.mine = 1\n")

    seen = watch("epoch_loop.py", PYTHONPATH=joined(tmp_path))

    assert f"mine sitecustomize {tmp_path / 'sitecustomize.py'}" in seen.stdout
    assert seen.step_count == 21


def test_a_failing_sitecustomize_fails_as_it_does_bare(watch: Watch, run_bare: Run, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("raise RuntimeError('mine is broken')\n")
    script = tmp_path / "plain.py"
    script.write_text("print('ran')\n")

    bare = run_bare(sys.executable, script, PYTHONPATH=joined(tmp_path))
    seen = watch(sys.executable, script, PYTHONPATH=joined(tmp_path))

    assert (seen.stdout, seen.returncode) == (bare.stdout, bare.returncode) == ("ran\n", 0)
    assert "mine is broken" in bare.stderr
    assert "mine is broken" in seen.stderr


@pytest.mark.parametrize("flag", ["-I", "-S", "-E"])
def test_an_interpreter_that_keeps_us_out_runs_bare_with_a_notice(watch: Watch, tmp_path: Path, flag: str) -> None:
    script = tmp_path / "plain.py"
    script.write_text("import sys\nprint('_flatout_attach' in sys.modules)\n")

    seen = watch("python", flag, script)

    assert (seen.stdout, seen.returncode) == ("False\n", 0)
    assert any(flag in notice for notice in seen.json["notices"]), seen.json["notices"]


def test_a_torch_that_is_too_old_runs_bare_with_a_notice(watch: Watch, tmp_path: Path) -> None:
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("__version__ = '1.13.1'\n")
    script = tmp_path / "plain.py"
    script.write_text("import torch\nprint(torch.__version__, vars(torch).keys() & {'save', 'Tensor'})\n")

    seen = watch("python", script, PYTHONPATH=joined(tmp_path))

    assert (seen.stdout, seen.returncode) == ("1.13.1 set()\n", 0)
    assert "1.13.1" in seen.notices
    assert seen.json["run"]["steps"] == 0


def test_a_script_without_torch(watch: Watch, tmp_path: Path) -> None:
    script = tmp_path / "plain.py"
    script.write_text("import sys\nprint(sys.argv[1:])\nsys.exit(4)\n")

    seen = watch("python", script, "--lr", "1e-3", "--", "-x")

    assert (seen.stdout, seen.returncode) == ("['--lr', '1e-3', '--', '-x']\n", 4)
    assert seen.json["run"]["steps"] == 0
    assert "torch" in seen.notices


def joined(*paths: Path) -> str:
    """A PYTHONPATH that begins with these."""
    return os.pathsep.join([*map(str, paths), *filter(None, [os.environ.get("PYTHONPATH")])])
