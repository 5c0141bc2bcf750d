"""Uses files in every way a training script does, and finds all as it left it. Prints how far it came."""

from __future__ import annotations

import csv
import glob
import json
import logging
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path


def raises(kind: type[OSError], call: object, *args: object) -> None:
    try:
        call(*args)  # type: ignore[operator]
    except kind as error:
        assert str(args[0]) in str(error), error
        assert "files/" not in str(error), f"the scratch folder is named: {error}"
    else:
        raise AssertionError(f"{kind.__name__} expected")


def new_and_old_files() -> None:
    with open("metrics.csv", "a", newline="") as file:
        csv.writer(file).writerow([2, 0.5])
        assert file.name == "metrics.csv"
    assert Path("metrics.csv").read_text().split() == ["1,0.9", "2,0.5"]
    with open("config.json", "r+") as file:
        config = json.load(file)
        file.seek(0)
        json.dump({**config, "lr": 2}, file)
    assert json.loads(Path("config.json").read_text()) == {"lr": 2}
    with Path("once.txt").open("x") as file:
        file.write("1")
    raises(FileExistsError, open, "once.txt", "x")
    raises(FileNotFoundError, open, "nowhere/a.txt", "w")
    os.truncate("config.json", 2)
    os.chmod("config.json", 0o600)
    os.utime("config.json", (1, 1))
    assert (os.stat("config.json").st_size, os.stat("config.json").st_mtime) == (2, 1)
    Path(os.fsdecode(b"caf\xe9.txt")).write_text("bytes")
    assert b"caf\xe9.txt" in os.listdir(b".")
    with open(os.open("by_descriptor", os.O_WRONLY | os.O_CREAT), "w") as file:
        file.write("d")
    with open("by_opener", "w", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
        file.write("o")
    assert Path("by_descriptor").read_text() + Path("by_opener").read_text() == "do"
    assert pickle.loads(pickle.dumps(os.stat)) is os.stat


def folders() -> None:
    assert sorted(os.listdir("results")) == ["1.txt", "deep"]
    shutil.rmtree("results")
    assert not os.path.exists("results") and "results" not in os.listdir()
    raises(FileNotFoundError, os.listdir, "results")
    os.makedirs("results/run1", exist_ok=False)
    assert os.listdir("results") == ["run1"]
    raises(FileExistsError, os.makedirs, "results/run1")
    os.makedirs("results/run1", exist_ok=True)
    Path("results/run1/a.txt").write_text("a")
    assert glob.glob("results/**/*.txt", recursive=True) == ["results/run1/a.txt"]
    assert [str(p) for p in Path("results").rglob("*.txt")] == ["results/run1/a.txt"]
    assert list(os.walk("results")) == [("results", ["run1"], []), ("results/run1", [], ["a.txt"])]
    assert [entry[:3] for entry in os.fwalk("results")] == list(os.walk("results"))
    shutil.copytree("data", "copied")
    shutil.move("copied", "results/moved")
    assert Path("results/moved/one.txt").read_text() == "one"
    os.rename("data", "renamed")
    assert not os.path.exists("data/one.txt") and os.listdir("renamed") == ["one.txt"]
    os.rename("renamed", "data")
    assert Path("data/one.txt").read_text() == "one"
    raises(OSError, os.rmdir, "data")


def replaced_atomically() -> None:
    with tempfile.NamedTemporaryFile(dir=".", delete=False) as file:
        file.write(b"new")
    with open("best.pt", "rb") as before:
        os.replace(file.name, "best.pt")
        assert before.read() == b"old" and Path("best.pt").read_bytes() == b"new"
    with tempfile.TemporaryDirectory(dir=".") as folder:
        Path(folder, "x").write_text("x")
    assert not os.path.exists(folder)
    os.symlink("best.pt", "latest.pt")
    assert Path("latest.pt").read_bytes() == b"new" and os.path.realpath("latest.pt") == os.path.abspath("best.pt")
    os.link("best.pt", "second.pt")
    os.unlink("best.pt")
    assert not os.path.exists("latest.pt") and os.path.lexists("latest.pt")
    assert Path("second.pt").read_bytes() == b"new"


def through_links_and_other_folders(elsewhere: str) -> None:
    # `linked` is a link of the user's to a folder elsewhere.
    Path("linked/through.txt").write_text("t")
    assert Path(elsewhere, "through.txt").read_text() == "t"
    Path(elsewhere, "there.txt").write_text("changed")
    assert Path("linked/there.txt").read_text() == "changed"
    os.makedirs("only/here")
    home = os.getcwd()
    os.chdir("only/here")
    assert os.getcwd() == f"{home}/only/here" == str(Path.cwd())
    Path("relative.txt").write_text("r")
    assert Path("../../data/one.txt").read_text() == "one"
    os.chdir("../..")
    assert os.getcwd() == home and Path("only/here/relative.txt").read_text() == "r"
    folder = os.open("only", os.O_RDONLY)
    os.mkdir("by_folder", dir_fd=folder)
    assert sorted(os.listdir(folder)) == ["by_folder", "here"]
    os.rmdir("by_folder", dir_fd=folder)
    assert os.listdir(folder) == ["here"]
    os.close(folder)


def logs() -> None:
    handler = logging.FileHandler("logs/train.log")
    logging.getLogger("train").addHandler(handler)
    logging.getLogger("train").warning("step 2")
    handler.close()
    assert Path("logs/train.log").read_text().split("\n")[:2] == ["step 1", "step 2"]


def children() -> None:
    own = [sys.executable, "-c", "import os; open('child.txt', 'a').write(open('once.txt').read()); print(os.getcwd())"]
    for environment in (None, {"PATH": os.environ["PATH"]}):
        done = subprocess.run(own, capture_output=True, text=True, check=True, env=environment)
        assert done.stdout.strip() == os.getcwd()
    assert Path("child.txt").read_text() == "11"
    inside = subprocess.run(
        [*own[:2], "import os; print(os.getcwd())"], cwd="only/here", capture_output=True, text=True
    )
    assert inside.stdout.strip() == f"{os.getcwd()}/only/here"
    subprocess.run(["tar", "--version"], capture_output=True, check=True)
    subprocess.run(["tar", "--version"], capture_output=True, check=True)


def modules() -> None:
    sys.path.insert(0, os.getcwd())
    import users_module  # type: ignore[import-not-found]

    assert users_module.VALUE == 3


modules()
new_and_old_files()
folders()
replaced_atomically()
through_links_and_other_folders(sys.argv[1])
logs()
children()
print("all as it should be")
