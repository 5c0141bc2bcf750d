"""What is read off batches and graphs while a script trains."""

from __future__ import annotations

from tests.integration.watching import Run, Watch, line_of


def test_padding_and_layouts_are_seen_and_nothing_changes(watch: Watch, run_bare: Run) -> None:
    seen = watch("padded.py")

    assert seen.returncode == 0 and "stopped watching" not in seen.notices
    assert seen.losses and seen.losses == run_bare("padded.py").losses
    (recording,) = seen.trainings
    notes = recording.values("padding")
    assert notes and all(note["computed"] and note["length"] == 64 for note in notes)
    assert all(8 <= length < 32 for note in notes for length in note["lengths"])
    torch = seen.json["live"]["torch"]
    assert torch["convolution_layouts"] == {"channels_first float32": 1.0}
    assert torch["convolution_share"] == 0.5
    (found,) = [finding for finding in seen.json["findings"] if finding["code"] == "CO507"]
    assert found["location"]["line"] == line_of("padded.py", "# LOADER")


def test_padding_that_the_model_cuts_off_is_not_its_trouble(watch: Watch) -> None:
    seen = watch("padded.py", "--cut")

    (recording,) = seen.trainings
    assert not any(note["computed"] for note in recording.values("padding"))
    assert not [finding for finding in seen.json["findings"] if finding["code"] == "CO507"]
