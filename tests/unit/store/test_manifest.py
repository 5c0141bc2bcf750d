from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from flatout.errors import FlatoutError
from flatout.records.message import verbatim
from flatout.store.manifest import Manifest, read_manifest, write_manifest

MANIFEST = Manifest("20260101-120000-train-beef", ("train.py", "--lr", "0.1"), "/somewhere", 1000.5, exit_code=3)


def test_a_manifest_round_trips(tmp_path: Path) -> None:
    manifest = dataclasses.replace(
        MANIFEST,
        environment={"gpus": [{"name": "H200"}], "load": 0.5},
        notices=(verbatim("one"), verbatim("two")),
        state="finished",
    )
    write_manifest(tmp_path, manifest)

    assert read_manifest(tmp_path) == manifest
    assert [p.name for p in tmp_path.iterdir()] == ["manifest.json"]


def test_nan_is_stored_as_null(tmp_path: Path) -> None:
    write_manifest(tmp_path, dataclasses.replace(MANIFEST, environment={"x": [float("nan")]}))

    assert read_manifest(tmp_path).environment == {"x": [None]}
    assert "NaN" not in (tmp_path / "manifest.json").read_text()


def test_arguments_that_are_no_utf8_round_trip(tmp_path: Path) -> None:
    argv = ("tr\udcffain.py", "with space", "new\nline", "ü")
    write_manifest(tmp_path, dataclasses.replace(MANIFEST, argv=argv))

    assert read_manifest(tmp_path).argv == argv


def test_keys_of_a_newer_flatout_do_not_disturb(tmp_path: Path) -> None:
    write_manifest(tmp_path, MANIFEST)
    value = json.loads((tmp_path / "manifest.json").read_text())
    (tmp_path / "manifest.json").write_text(json.dumps({**value, "invented": 1}))

    assert read_manifest(tmp_path) == MANIFEST


@pytest.mark.parametrize("text", ['{"schema": 99, "id": "x"}', "[]", '{"id": "x"}', "{"])
def test_an_unknown_schema_is_refused_and_never_rewritten(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)

    with pytest.raises(FlatoutError):
        read_manifest(tmp_path)
    with pytest.raises(FlatoutError):
        write_manifest(tmp_path, MANIFEST)
    assert (tmp_path / "manifest.json").read_text() == text


def test_a_folder_without_a_manifest_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(FlatoutError, match="not a run"):
        read_manifest(tmp_path)


def test_secrets_are_taken_out_whoever_writes(tmp_path: Path) -> None:
    manifest = dataclasses.replace(
        MANIFEST,
        argv=("train.py", "--api-key", "Zq8PlantedOne"),
        environment={"HF_TOKEN": "Zq8PlantedTwo", "proxy": "http://me:Zq8PlantedThree@proxy:3128"},
        notices=(verbatim("see https://host/?token=Zq8PlantedFour"),),
    )

    write_manifest(tmp_path, manifest)

    assert "Zq8" not in (tmp_path / "manifest.json").read_text()
