from __future__ import annotations

import dataclasses
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from flatout.attach.recorder import Recorder
from flatout.errors import FlatoutError
from flatout.store.directory import compact, create_run, find_run, is_recorded, prune, run_paths, size_bytes
from flatout.store.manifest import Manifest, read_manifest, write_manifest
from flatout.store.mounts import is_network, mount_of, parse_mounts
from flatout.store.recording import read_recording
from flatout.store.run import StoredRun
from flatout.words import english
from tests.unit.making import Making, facts, step_body

NFS = "30 1 0:27 / / rw - ext4 /dev/vda rw\n31 30 0:28 / {} rw,relatime shared:1 - nfs4 server:/export rw\n"


def finished(root: Path, started_s: float, pid: int | None = None) -> Path:
    run = create_run("train.py", root=root, clock=lambda: started_s)
    manifest = run.begin(Manifest(run.id, ("train.py",), "/", started_s))
    run.finish(dataclasses.replace(manifest, exit_code=0, pid=pid))
    return run.path


def test_a_new_run_has_its_parts_and_a_telling_id(tmp_path: Path) -> None:
    run = create_run("some/my train!.py", root=tmp_path, clock=lambda: 1_700_000_000.0)

    assert re.fullmatch(r"\d{8}-\d{6}-my-train-[0-9a-f]{4}", run.id)
    assert run.work == run.path == tmp_path / run.id
    assert {p.name for p in run.path.iterdir()} == {"proc", "telemetry"}
    assert run.notices == ()


def test_out_is_taken_as_it_is_and_not_used_twice(tmp_path: Path) -> None:
    run = create_run("train.py", out=tmp_path / "mine")
    assert run.path == tmp_path / "mine"
    (run.path / "proc" / "1-1.rec").write_bytes(b"")

    with pytest.raises(FlatoutError, match="already holds a run"):
        create_run("train.py", out=tmp_path / "mine")


def test_where_nothing_can_be_made_a_temporary_place_is_used_with_a_notice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A file in the way stops even root, whom permissions do not.
    (tmp_path / "file").write_text("")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()

    run = create_run("train.py", root=tmp_path / "file" / "runs")

    assert run.path.is_relative_to(tmp_path / "tmp")
    assert len(run.notices) == 1 and "not writable" in english(run.notices[0])


def test_on_a_network_file_system_records_stay_local_until_the_end(tmp_path: Path) -> None:
    run = create_run("train.py", root=tmp_path, mountinfo=NFS.format(tmp_path))
    assert not run.work.is_relative_to(tmp_path)
    assert "nfs4" in english(run.notices[0])
    manifest = run.begin(Manifest(run.id, ("train.py",), "/", 1.0))
    recorder = Recorder(str(run.work / "proc" / "1-1.rec"), facts())
    recorder.append(step_body(0, 0, 1))
    recorder.close()
    assert StoredRun(run.path).recordings[0].count("step") == 1

    local = run.work
    run.finish(dataclasses.replace(manifest, exit_code=0))

    assert not local.exists()
    assert StoredRun(run.path).recordings[0].path.is_relative_to(tmp_path)
    assert read_manifest(run.path).state == "finished"


def test_mounts() -> None:
    table = "1 0 8:1 / / rw - ext4 /dev/sda rw\n2 1 0:5 / /mnt/my\\040data rw - fuse.sshfs me@host: rw\n"

    mounts = parse_mounts(table)
    data, other = mount_of(Path("/mnt/my data/x"), mounts), mount_of(Path("/mnt/other"), mounts)
    assert data is not None and data.type == "fuse.sshfs"
    assert other is not None and other.type == "ext4"
    assert mount_of(Path("/mnt/other"), parse_mounts("")) is None
    assert all(map(is_network, ("nfs", "nfs4", "cifs", "9p", "lustre", "gpfs", "fuse.sshfs", "fuse.juicefs")))
    assert not any(map(is_network, ("ext4", "xfs", "tmpfs", "overlay", "fuse.fuse-overlayfs", "fuse.ntfs")))


def test_runs_are_listed_newest_first_and_found_by_a_part_of_the_id(tmp_path: Path) -> None:
    old, new = finished(tmp_path, 1_700_000_000), finished(tmp_path, 1_700_100_000)
    (tmp_path / "no-run").mkdir()

    assert run_paths(tmp_path) == [new, old]
    assert find_run("last", tmp_path) == new
    assert find_run(old.name, tmp_path) == old
    assert find_run(old.name[:-2], tmp_path) == old
    assert find_run(str(old)) == old
    for name in ("2023", "nothing"):
        with pytest.raises(FlatoutError, match=name):
            find_run(name, tmp_path)


def test_a_run_under_another_name_stands_where_its_time_is(tmp_path: Path) -> None:
    old, between, new = (finished(tmp_path, 1_700_000_000 + day * 86400) for day in range(3))
    imported = between.rename(tmp_path / "zebra")
    broken = finished(tmp_path, 1_700_000_000).rename(tmp_path / "zoo")
    (broken / "manifest.json").write_text("{}")

    assert run_paths(tmp_path) == [new, imported, old, broken]
    assert find_run("last", tmp_path) == new


class TestPrune:
    def test_keeps_the_newest_and_the_young(self, tmp_path: Path) -> None:
        paths = [finished(tmp_path, 1_700_000_000 + day * 86400) for day in range(5)]
        now_s = 1_700_000_000 + 5 * 86400

        assert prune(tmp_path, keep=1, older_than_s=2.5 * 86400, now_s=now_s) == [paths[2], paths[1], paths[0]]
        assert run_paths(tmp_path) == [paths[4], paths[3]]
        assert prune(tmp_path, keep=0, now_s=now_s) == [paths[4], paths[3]]

    def test_what_cannot_be_read_is_none_of_those_to_keep(self, tmp_path: Path) -> None:
        good, newer = finished(tmp_path, 1_700_000_000), finished(tmp_path, 1_700_100_000)
        (newer / "manifest.json").write_text("{}")

        assert prune(tmp_path, keep=1) == []
        assert run_paths(tmp_path) == [newer, good]

    def test_never_takes_a_run_that_is_being_recorded(self, tmp_path: Path) -> None:
        run = create_run("train.py", root=tmp_path)
        run.begin(Manifest(run.id, ("train.py",), "/", 1.0))

        assert is_recorded(run.path, read_manifest(run.path))
        assert prune(tmp_path, keep=0) == []

    def test_takes_a_run_whose_watcher_was_killed_unless_the_script_lives(self, tmp_path: Path) -> None:
        child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        run = create_run("train.py", root=tmp_path)
        manifest = run.begin(Manifest(run.id, ("train.py",), "/", 1.0))
        write_manifest(run.path, dataclasses.replace(manifest, pid=_dead_pid(), pid_start="1"))
        (run.path / "proc" / f"{child.pid}-1.rec").write_bytes(b"")
        try:
            assert prune(tmp_path, keep=0) == []
        finally:
            child.kill()
            child.communicate()

        assert prune(tmp_path, keep=0) == [run.path]

    def test_leaves_alone_what_it_cannot_read_or_cannot_know(self, tmp_path: Path) -> None:
        foreign = finished(tmp_path, 1.0)
        (foreign / "manifest.json").write_text('{"schema": 99}')
        elsewhere = create_run("train.py", root=tmp_path)
        manifest = elsewhere.begin(Manifest(elsewhere.id, ("train.py",), "/", 1.0))
        write_manifest(elsewhere.path, dataclasses.replace(manifest, host="another-host", pid=1))

        assert prune(tmp_path, keep=0) == []

    def test_a_reused_process_number_is_not_taken_for_the_watcher(self, tmp_path: Path) -> None:
        run = create_run("train.py", root=tmp_path)
        manifest = run.begin(Manifest(run.id, ("train.py",), "/", 1.0))
        write_manifest(run.path, dataclasses.replace(manifest, pid_start="1"))

        assert not is_recorded(run.path, read_manifest(run.path))


class TestCompact:
    def test_cuts_the_unused_tail_of_a_dead_process_only(self, tmp_path: Path) -> None:
        host = os.uname().nodename
        for name, pid, cut in (("dead", _dead_pid(), True), ("alive", os.getpid(), False)):
            path = tmp_path / f"{name}.rec"
            recorder = Recorder(str(path), facts(pid, host=host))
            for i in range(10):
                recorder.append(step_body(i, i, 1))
            before = path.stat().st_size

            gained = compact(path)

            assert (gained > 0) == cut and path.stat().st_size == before - gained
            assert read_recording(path).count("step") == 10

    def test_leaves_a_file_it_does_not_know(self, tmp_path: Path) -> None:
        (tmp_path / "x.rec").write_bytes(b"something else" + bytes(1000))

        assert compact(tmp_path / "x.rec") == 0
        assert (tmp_path / "x.rec").stat().st_size == 1014


def test_a_stored_run_reads_all_it_can(tmp_path: Path) -> None:
    making = Making(tmp_path)
    for pid in (1, 2):
        process = making.process(pid)
        process.steps(5)
        process.end()
    damaged = next(making.directory.path.glob("proc/2-*.rec"))
    data = bytearray(damaged.read_bytes())
    data[200] ^= 0xFF
    damaged.write_bytes(data)
    (making.directory.path / "proc" / "3-1.rec").write_bytes(b"rubbish that is long enough to look at")
    (making.directory.path / "telemetry" / "gpu.rows").write_bytes(b"rubbish")

    run = making.stored()

    assert [r.count("step") for r in run.recordings] == [5, 5]
    assert run.rows("gpu") is None and run.rows("host") is None
    assert len(run.unreadable) == 2
    assert size_bytes(run.path) > 0


def _dead_pid() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def test_runs_that_begin_in_the_same_second_never_share_a_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = iter([b"\x01\x02", b"\x01\x02", b"\x03\x04"])
    monkeypatch.setattr(os, "urandom", lambda count: next(drawn))

    made = [create_run("train.py", root=tmp_path, clock=lambda: 0.0) for _ in range(2)]

    assert [one.path.name[-4:] for one in made] == ["0102", "0304"]
