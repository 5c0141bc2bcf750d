"""A run as one file: what comes back is what went in, and what a stranger may not do."""

from __future__ import annotations

import gzip
import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from flatout.errors import FlatoutError
from flatout.store.bundle import Contents, Limits, look_through, pack, unpack
from flatout.store.run import StoredRun
from tests.unit.making import Making

SMALL = Limits(files=20, total_bytes=1 << 20, json_bytes=1 << 16)


@pytest.fixture
def run(tmp_path: Path) -> StoredRun:
    making = Making(tmp_path / "runs")
    process = making.process()
    process.steps(20)
    process.end()
    making.rows("host", ("t_s", "cpu_share"), [(1.0, 0.5), (2.0, None)])
    making.directory.write_summary({"schema": 1})
    return making.stored()


def archive(*members: tuple[tarfile.TarInfo, bytes], form: int = tarfile.USTAR_FORMAT) -> io.BytesIO:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz", format=form) as tar:
        for info, data in members:
            tar.addfile(info, io.BytesIO(data))
    out.seek(0)
    return out


def plain(name: str, data: bytes = b"{}", **more: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for field, value in more.items():
        setattr(info, field, value)
    return info, data


MANIFEST = plain("manifest.json")


def test_what_comes_out_is_what_went_in(run: StoredRun, tmp_path: Path) -> None:
    file, folder = tmp_path / "run.tgz", tmp_path / "out"
    folder.mkdir()

    size = pack(run, file)
    with file.open("rb") as bundle:
        contents = look_through(bundle, "run.tgz")
        unpack(bundle, "run.tgz", folder)

    assert size == file.stat().st_size
    assert contents.manifest == (run.path / "manifest.json").read_bytes()
    assert contents.summary == (run.path / "summary.json").read_bytes()
    parts = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    assert [str(part.parent) for part in parts] == ["proc", "telemetry"]
    for part in parts:
        assert (folder / part).read_bytes() == (run.path / part).read_bytes()
        assert (folder / part).stat().st_mode & 0o777 == 0o600


def test_the_same_run_gives_the_same_bytes_and_an_ordinary_tar(run: StoredRun, tmp_path: Path) -> None:
    first, second = tmp_path / "a.tgz", tmp_path / "b.tgz"

    pack(run, first)
    pack(run, second)

    assert first.read_bytes() == second.read_bytes()
    with tarfile.open(first) as tar:
        members = tar.getmembers()
    assert members[0].name == "manifest.json"
    assert {(member.mode, member.uid, member.uname) for member in members} == {(0o600, 0, "")}


def test_nothing_but_the_run_s_own_files_is_packed(run: StoredRun, tmp_path: Path) -> None:
    (tmp_path / "private.txt").write_text("SECRET-IN-PLAIN")
    (run.path / "notes.txt").write_text("SECRET-IN-PLAIN")
    (run.path / "proc" / "1-1.rec").symlink_to(tmp_path / "private.txt")
    os.mkfifo(run.path / "telemetry" / "pipe.rows")

    pack(run, tmp_path / "run.tgz")

    assert b"SECRET-IN-PLAIN" not in gzip.decompress((tmp_path / "run.tgz").read_bytes())


def test_a_bundle_that_cannot_be_written_is_one_line_and_leaves_nothing(run: StoredRun, tmp_path: Path) -> None:
    with pytest.raises(FlatoutError, match="cannot be written"):
        pack(run, tmp_path / "missing" / "run.tgz")
    (tmp_path / "taken").mkdir()
    with pytest.raises(FlatoutError, match="cannot be written"):
        pack(run, tmp_path / "taken")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["runs", "taken"]


@pytest.mark.parametrize(
    ("member", "why"),
    [
        (plain("../manifest.json"), "not a file that a run has"),
        (plain("proc/../../x.rec"), "not a file that a run has"),
        (plain("/etc/cron.d/x"), "not a file that a run has"),
        (plain("proc\\..\\x.rec"), "not a file that a run has"),
        (plain("proc/a/b.rec"), "not a file that a run has"),
        (plain("proc/\u2025.rec"), "not a file that a run has"),
        (plain("proc/a\n.rec"), "not a file that a run has"),
        (plain("run.py"), "not a file that a run has"),
        (plain("proc/1-1.rec.py"), "not a file that a run has"),
        (plain("MANIFEST.json"), "not a file that a run has"),
        (plain("proc", b"", type=tarfile.DIRTYPE), "a folder"),
        (plain("proc/1-1.rec", b"", type=tarfile.SYMTYPE, linkname="/etc/passwd"), "a symbolic link"),
        (plain("proc/1-1.rec", b"", type=tarfile.LNKTYPE, linkname="manifest.json"), "a hard link"),
        (plain("proc/1-1.rec", b"", type=tarfile.CHRTYPE, devmajor=1, devminor=5), "a device"),
        (plain("proc/1-1.rec", b"", type=tarfile.BLKTYPE), "a device"),
        (plain("proc/1-1.rec", b"", type=tarfile.FIFOTYPE), "a pipe"),
        (plain("proc/1-1.rec", b"", type=tarfile.CONTTYPE), "unknown kind"),
        (plain("manifest.json"), "twice"),
    ],
)
def test_what_a_run_does_not_have_is_refused(member: tuple[tarfile.TarInfo, bytes], why: str) -> None:
    with pytest.raises(FlatoutError, match=why):
        look_through(archive(MANIFEST, member), "x.tgz", SMALL)


def test_names_that_differ_in_case_only_are_refused() -> None:
    # One file of the two would be lost where file names have no case.
    with pytest.raises(FlatoutError, match="twice"):
        look_through(archive(MANIFEST, plain("proc/a.rec"), plain("proc/A.rec")), "x.tgz", SMALL)


@pytest.mark.parametrize("form", [tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names_and_extended_headers_are_refused_unread(form: int) -> None:
    with pytest.raises(FlatoutError, match=r"long name|extended header"):
        look_through(archive(MANIFEST, plain("proc/" + "a" * 300 + ".rec"), form=form), "x.tgz", SMALL)


def _zeros(size: int) -> tuple[tarfile.TarInfo, bytes]:
    return plain("proc/1-1.rec", bytes(size))


def _told_more() -> io.BytesIO:
    """A header that tells of far more than there is."""
    data = bytearray(gzip.decompress(archive(MANIFEST, plain("proc/1-1.rec", b"abc")).getvalue()))
    at = data.index(b"proc/1-1.rec")
    data[at + 124 : at + 136] = b"77777777777\0"
    data[at + 148 : at + 156] = b"        "
    data[at + 148 : at + 156] = b"%06o\0 " % sum(data[at : at + 512])
    return io.BytesIO(gzip.compress(bytes(data)))


def _no_octal_sum() -> io.BytesIO:
    data = bytearray(gzip.decompress(archive(MANIFEST).getvalue()))
    data[148:156] = b"9999999\0"
    return io.BytesIO(gzip.compress(bytes(data)))


@pytest.mark.parametrize(
    ("made", "why"),
    [
        (lambda: archive(MANIFEST, _zeros(SMALL.total_bytes + 1)), "would take the bundle over"),
        (lambda: archive(MANIFEST, *(plain(f"proc/{n}.rec", bytes(1 << 17)) for n in range(9))), "over 1,048,576"),
        (lambda: archive(plain("manifest.json", b" " * (1 << 17))), "over 65,536"),
        (lambda: archive(MANIFEST, *(plain(f"proc/{n}.rec", b"") for n in range(30))), "more than 20 files"),
        (_told_more, "would take the bundle over"),
        (lambda: io.BytesIO(gzip.compress(bytes(1 << 24))), "holds no manifest|something behind its end"),
        (lambda: io.BytesIO(gzip.compress(archive().read() + b"x" * 512)), "does not match its sum"),
        (_no_octal_sum, "does not match its sum"),
    ],
)
def test_a_bomb_is_refused(made: Callable[[], io.BytesIO], why: str) -> None:
    with pytest.raises(FlatoutError, match=why):
        look_through(made(), "x.tgz", SMALL)


def test_what_unpacks_to_far_more_is_refused_without_reading_it_all() -> None:
    # 32 MB that pack to 32 KB, in place of the padding that ends an archive.
    data = gzip.decompress(archive(MANIFEST).getvalue()) + bytes(32 << 20)
    bundle = io.BytesIO(gzip.compress(data))

    with pytest.raises(FlatoutError, match="behind its end"):
        look_through(bundle, "x.tgz", SMALL)

    assert bundle.tell() < len(bundle.getvalue())


@pytest.mark.parametrize("keep", [0, 1, 10, 100, -1, -9, -30])
def test_a_file_that_was_cut_off_is_refused(run: StoredRun, tmp_path: Path, keep: int) -> None:
    pack(run, tmp_path / "run.tgz")
    data = (tmp_path / "run.tgz").read_bytes()

    with pytest.raises(FlatoutError, match=r"damaged|too early|no bundle"):
        look_through(io.BytesIO(data[:keep]), "x.tgz")


def test_a_flipped_byte_is_found(run: StoredRun, tmp_path: Path) -> None:
    pack(run, tmp_path / "run.tgz")
    data = bytearray((tmp_path / "run.tgz").read_bytes())
    whole = gzip.decompress(data)

    for at in [*range(0, len(data), 97), len(data) - 9]:
        hurt = bytearray(data)
        hurt[at] ^= 0x10
        try:
            found: Contents | None = look_through(io.BytesIO(hurt), "x.tgz")
        except FlatoutError:
            continue
        # A few bits mean nothing: of gzip's own header, after the end of the stream in its last byte, and which of many
        # equal bytes are repeated.
        assert found is not None and (at < 10 or gzip.decompress(hurt) == whole)


@pytest.mark.parametrize(
    "data", [b"", b"no archive", b"PK\x03\x04" + bytes(100), gzip.compress(b"{}", mtime=0), bytes(10_240)]
)
def test_what_is_no_bundle_is_said_to_be_none(data: bytes) -> None:
    with pytest.raises(FlatoutError, match=r"x\.tgz"):
        look_through(io.BytesIO(data), "x.tgz")


def test_an_archive_without_a_manifest_is_no_run() -> None:
    with pytest.raises(FlatoutError, match="holds no manifest"):
        look_through(archive(plain("summary.json")), "x.tgz")


def test_unpacking_never_writes_over_a_file_or_through_a_link(run: StoredRun, tmp_path: Path) -> None:
    pack(run, tmp_path / "run.tgz")
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "proc").symlink_to(tmp_path)

    with (tmp_path / "run.tgz").open("rb") as bundle, pytest.raises(FileExistsError):
        unpack(bundle, "x", folder)
