"""The overlay by itself: what is seen where, and by whom."""

from __future__ import annotations

from pathlib import Path

import pytest

from flatout.attach.trial.sandbox.overlay import LinkFreeFolders, Overlay
from flatout.attach.trial.sandbox.scratch import Places


@pytest.fixture
def user(tmp_path: Path) -> Path:
    (tmp_path / "user/data").mkdir(parents=True)
    (tmp_path / "user/data/a.txt").write_text("a")
    return tmp_path / "user"


def overlay(tmp_path: Path) -> Overlay:
    """As one process of the trial has it."""
    scratch = str(tmp_path / "scratch")
    return Overlay(scratch, Places(scratch, [str(tmp_path / "user")], {}))


def test_what_nobody_wrote_to_is_read_by_its_own_name(user: Path, tmp_path: Path) -> None:
    one = overlay(tmp_path)

    assert one.words[0] == 0
    assert one.path_for_reading(f"{user}/data/a.txt") is None
    assert one.path_for_reading(f"{user}/data/../data/a.txt") is None


def test_to_read_where_nothing_was_written_the_system_is_not_asked(
    user: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (user / "metrics.csv").write_text("1")
    one = overlay(tmp_path)
    one.copy_up(f"{user}/metrics.csv")
    for _ in range(60):
        one.path_for_reading(f"{user}/data/a.txt")

    # Whatever it asks, it asks by one of these.
    monkeypatch.setattr("flatout.attach.trial.sandbox.overlay.mode_of", None)
    monkeypatch.setattr("flatout.attach.trial.sandbox.overlay.posix", None)

    assert one.path_for_reading(f"{user}/data/a.txt") is None
    assert one.path_for_reading(f"{user}/data/another.txt") is None


def test_a_copy_is_made_once_and_keeps_time_and_mode(user: Path, tmp_path: Path) -> None:
    original = user / "data/a.txt"
    original.chmod(0o640)
    one = overlay(tmp_path)

    mirror = Path(one.copy_up(str(original)))
    mirror.write_text("changed")

    assert one.copy_up(str(original)) == str(mirror) == one.path_for_reading(str(original))
    assert mirror.read_text() == "changed"
    assert (original.read_text(), mirror.stat().st_mode) == ("a", original.stat().st_mode)


def test_one_process_sees_what_another_made_and_removed(user: Path, tmp_path: Path) -> None:
    one, other = overlay(tmp_path), overlay(tmp_path)
    path = f"{user}/data/a.txt"
    assert other.path_for_reading(path) is None

    one.copy_up(path)
    seen = other.path_for_reading(path)
    one.white_out(f"{user}/data")

    assert seen == one.mirror(path)
    assert other.is_gone(path) and other.names(str(user)) == ["data"]


def test_an_empty_copy_is_made_where_the_content_is_not_needed(user: Path, tmp_path: Path) -> None:
    mirror = overlay(tmp_path).copy_up(f"{user}/data/a.txt", empty=True)

    assert Path(mirror).read_text() == ""


def test_a_link_leads_to_the_mirror_of_what_it_leads_to(user: Path, tmp_path: Path) -> None:
    (user / "link.txt").symlink_to("data/a.txt")
    one = overlay(tmp_path)
    assert one.path_for_reading(f"{user}/link.txt") is None

    mirror = one.copy_up(f"{user}/data/a.txt")

    assert one.path_for_reading(f"{user}/link.txt") == mirror
    assert one.path_for_reading(f"{user}/link.txt", follow=False) is None


def test_links_in_a_circle_are_an_error_as_they_are_to_the_system(user: Path, tmp_path: Path) -> None:
    (user / "here").symlink_to("there")
    (user / "there").symlink_to("here")

    with pytest.raises(OSError, match="symbolic links"):
        overlay(tmp_path).resolve(f"{user}/here/a.txt")


def test_a_folder_often_asked_for_is_looked_through_once(user: Path) -> None:
    folders = LinkFreeFolders()
    (user / "link").symlink_to("data")

    for _ in range(100):
        folders.ask(str(user))
        folders.ask(f"{user}/data")

    assert folders.folders == {f"{user}/data"}


def test_places() -> None:
    environ = {"HOME": "/u", "TORCH_HOME": "/big/torch", "FLATOUT_RUN_DIR": "/u/project/.flatout/1"}
    places = Places("/u/project/.flatout/1/scratch", ["/u/project", "/tmp/project"], environ)

    theirs = ("/u/a", "/u/project/out/a", "/tmp/project/a", "/etc/a", "/u/project/__pycache__/a.pyc", "/big/a")
    free = ("/tmp/a", "/u/.cache/a", "/big/torch/a", "/dev/shm/a", "/u/project/.flatout/1/a", "/lib/x/__pycache__/a")

    assert [path for path in theirs if not places.is_contained(path)] == []
    assert [path for path in free if places.is_contained(path)] == []
