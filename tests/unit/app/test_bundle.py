"""Taking in a run that a stranger packed: what is believed, and what is left behind when it is refused."""

from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flatout.app.export import export_bundle, import_bundle
from flatout.app.runs import list_runs
from flatout.diagnose.source_join import join_source
from flatout.diagnose.summary import examine_run
from flatout.errors import FlatoutError
from flatout.store.run import StoredRun
from tests.unit.making import MS, Making, body

SECRET = "hf_abcdefghijklmnopqrstuvwxyz012345"


@pytest.fixture
def run(tmp_path: Path) -> StoredRun:
    """A run of a script that is still there, with a line that costs time."""
    script = tmp_path / "train.py"
    script.write_text("import time\npassword = 'in the source'\ntime.sleep(1)\n")
    os.utime(script, (10.0, 10.0))
    making = Making(tmp_path / "runs", ("train.py", "--token", SECRET, "--url", "https://me:pass1word@host/x"))
    process = making.process()
    process.text("site", {"id": 0, "op": "item", "file": str(script), "line": 3, "function": "main"})
    process.append(body("site", 0, 40, 4 * MS, MS, 0, 0, 0, 0))
    process.steps(40, phases={"data": 0.5})
    process.end()
    making.directory.write_summary(
        {"snippets": [{"location": {"file": str(script), "line": 3}, "text": "time.sleep(1)"}], "schema": 1}
    )
    return making.stored(environment={"host": "box", "variables": {"WANDB_API_KEY": SECRET}})


@pytest.fixture
def bundle(run: StoredRun, tmp_path: Path) -> Path:
    return export_bundle(str(run.path), tmp_path / "run.tgz")[0]


def rebuilt(bundle: Path, change: Callable[[dict[str, bytes]], None]) -> Path:
    """The bundle with other contents."""
    with tarfile.open(bundle) as tar:
        files = {name: tar.extractfile(name).read() for name in tar.getnames()}  # type: ignore[union-attr]
    change(files)
    out = bundle.with_name("changed.tgz")
    with tarfile.open(out, "w:gz", format=tarfile.USTAR_FORMAT) as tar:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return out


def manifest_with(**more: Any) -> Callable[[dict[str, bytes]], None]:
    def change(files: dict[str, bytes]) -> None:
        files["manifest.json"] = json.dumps({**json.loads(files["manifest.json"]), **more}).encode()

    return change


def test_an_imported_run_is_judged_as_it_was(run: StoredRun, bundle: Path, tmp_path: Path) -> None:
    taken = import_bundle(bundle, tmp_path / "there", None, None)

    before, after = examine_run(run).report, examine_run(taken).report
    assert taken.id == run.id
    assert after.throughput == before.throughput
    assert after.phases == before.phases
    (line,) = list_runs(tmp_path / "there")
    assert line.state == "finished" and line.steps == 40
    # The text of its lines came with it; there is no other way to it.
    assert taken.summary is not None and taken.summary["snippets"][0]["text"] == "time.sleep(1)"


def test_no_secret_is_in_a_bundle(bundle: Path) -> None:
    data = gzip.decompress(bundle.read_bytes())

    assert SECRET.encode() not in data
    assert b"pass1word" not in data


def test_files_that_a_stranger_names_are_never_read(run: StoredRun, bundle: Path, tmp_path: Path) -> None:
    taken = import_bundle(bundle, tmp_path / "there", None, None)

    assert join_source(run, examine_run(run)).report.source is not None  # the run's own machine does read them
    evidence = join_source(taken, examine_run(taken))
    assert evidence.report.source is None
    assert evidence.source == {} and evidence.files == {}


def test_a_manifest_can_point_to_nothing_on_this_machine(bundle: Path, run: StoredRun, tmp_path: Path) -> None:
    evil = rebuilt(bundle, manifest_with(state="running", pid=1, work=str(run.path), host="elsewhere", imported=False))

    taken = import_bundle(evil, tmp_path / "there", None, None)

    manifest = taken.manifest
    assert (manifest.state, manifest.pid, manifest.work, manifest.imported) == ("finished", None, None, True)
    assert not taken.is_running
    assert taken.records_at == taken.path


@pytest.mark.parametrize(
    ("name", "expected"),
    [("../../x", "x"), ("/etc/passwd", "etc-passwd"), ("..", "run"), ("a b\x1b[2J", "a-b-2J"), ("", "run")],
)
def test_a_name_never_leads_out_of_the_runs_folder(bundle: Path, tmp_path: Path, name: str, expected: str) -> None:
    taken = import_bundle(rebuilt(bundle, manifest_with(id=name)), tmp_path / "there", None, None)

    assert taken.path == tmp_path / "there" / expected
    assert taken.id == expected


def test_no_escape_sequence_is_kept(bundle: Path, tmp_path: Path) -> None:
    evil = rebuilt(bundle, manifest_with(argv=["train\x1b]0;x\x07.py"], notices=["\x9b2J", "\ud800"], cwd="/\u202egpj"))

    taken = import_bundle(evil, tmp_path / "there", None, None)

    kept = (taken.path / "manifest.json").read_text() + (taken.path / "summary.json").read_text()
    gone = ("\\u001b", "\\u0007", "\\u009b", "\\u202e", "\\ud800", "\x9b", "\u202e")
    assert not any(sign in kept for sign in gone)


def _nested(depth: int) -> dict[str, Any]:
    inside: dict[str, Any] = {}
    for _ in range(depth):
        inside = {"a": inside}
    return inside


def _no_record(files: dict[str, bytes]) -> None:
    """A recording whose table makes two fields of one name, which numpy refuses."""
    name = next(name for name in files if name.endswith(".rec"))
    import struct
    import zlib

    text = json.dumps({"kinds": {"step": {"id": 2, "fields": [["a", "Q"], ["a", "Q"]]}}, "phases": []}).encode()
    head = struct.pack("<8sIIII", b"FLATOUT\x01", 1, 4096, len(text), zlib.crc32(text))
    files[name] = (head + text).ljust(4096, b"\0") + files[name][4096:]


def _bad_rows(files: dict[str, bytes]) -> None:
    files["manifest.json"] = json.dumps(
        {**json.loads(files["manifest.json"]), "environment": {"cpus_allowed": "many"}}
    ).encode()


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (manifest_with(schema=99), "schema '99'"),
        (manifest_with(argv="train.py"), "not one of a run"),
        (manifest_with(notices="x"), "not one of a run"),
        (manifest_with(ended_unix_s=float("nan")), "not one of a run"),
        (manifest_with(argv=[1, 2]), "not one of a run"),
        (manifest_with(started_unix_s="now"), "not one of a run"),
        (manifest_with(started_unix_s=10**400), "not one of a run"),
        (manifest_with(environment=[1]), "not one of a run"),
        (manifest_with(wall_s="long"), "not one of a run"),
        (manifest_with(wall_s=-1), "not one of a run"),
        (manifest_with(started_unix_s=1e300), "not one of a run"),
        (manifest_with(environment=_nested(450)), "more than 20 deep"),
        (lambda files: files.update({"manifest.json": b"[" * 100_000}), "schema 'None'"),
        (lambda files: files.update({"manifest.json": b"\xff\xfe"}), "schema 'None'"),
        (_no_record, "cannot be judged"),
        (_bad_rows, "cannot be judged"),
        (lambda files: files.pop("manifest.json"), "holds no manifest"),
        (lambda files: files.update({"proc/x.so": b""}), "not a file that a run has"),
    ],
)
def test_what_is_refused_leaves_nothing_behind(
    bundle: Path, tmp_path: Path, change: Callable[[dict[str, bytes]], None], why: str
) -> None:
    root = tmp_path / "there"
    root.mkdir()

    with pytest.raises(FlatoutError, match=why):
        import_bundle(rebuilt(bundle, change), root, None, None)

    assert list(root.iterdir()) == []


def test_what_an_archive_may_not_hold_does_not_even_make_the_folder(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(FlatoutError):
        import_bundle(rebuilt(bundle, lambda files: files.update({"../x": b""})), tmp_path / "there", None, None)

    assert not (tmp_path / "there").exists()


def test_a_summary_of_a_stranger_is_not_believed(bundle: Path, tmp_path: Path) -> None:
    lies = {"schema": 1, "throughput": {"samples_per_s": "∞"}, "run": {"steps": []}, "snippets": [{"text": 1}, 7, "x"]}
    evil = rebuilt(bundle, lambda files: files.update({"summary.json": json.dumps(lies).encode()}))

    import_bundle(evil, tmp_path / "there", None, None)

    (line,) = list_runs(tmp_path / "there")
    assert line.samples_per_s == pytest.approx(3200)
    assert line.steps == 40


def test_a_run_of_that_name_stays_as_it_is(bundle: Path, tmp_path: Path) -> None:
    first = import_bundle(bundle, tmp_path / "there", None, None)

    with pytest.raises(FlatoutError, match="give another --name"):
        import_bundle(bundle, tmp_path / "there", None, None)
    second = import_bundle(bundle, tmp_path / "there", "again", None)

    assert {path.name for path in (tmp_path / "there").iterdir()} == {first.id, "again"}
    assert second.id == "again"


@pytest.mark.parametrize("name", ["../x", "a/b", ".hidden", "", "a\nb"])
def test_a_name_of_ours_is_checked_too(bundle: Path, tmp_path: Path, name: str) -> None:
    with pytest.raises(FlatoutError, match="--name may hold"):
        import_bundle(bundle, tmp_path / "there", name, None)


def test_a_limit_can_be_set_and_a_missing_file_is_one_line(bundle: Path, tmp_path: Path) -> None:
    with pytest.raises(FlatoutError, match="would take the bundle over"):
        import_bundle(bundle, tmp_path / "there", None, 0.000001)
    with pytest.raises(FlatoutError, match="--max-gb must be above 0"):
        import_bundle(bundle, tmp_path / "there", None, -1.0)
    with pytest.raises(FlatoutError, match="No such file"):
        import_bundle(tmp_path / "none.tgz", None, None, None)
    with pytest.raises(FlatoutError, match="Is a directory"):
        import_bundle(tmp_path, None, None, None)
