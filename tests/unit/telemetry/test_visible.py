from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from flatout.telemetry.nvml import Listed, setting_of, visible_gpus

GPUS = [
    Listed("GPU-11111111-aa", 0),
    Listed("GPU-11112222-bb", 1),
    Listed("MIG-99990000-cc", None, parent=1),
    Listed("MIG-99991111-dd", None, parent=1),
    Listed("GPU-33333333-ee", 2),
]


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (None, ["GPU-11111111-aa", "GPU-11112222-bb", "GPU-33333333-ee"]),
        ("2,0", ["GPU-33333333-ee", "GPU-11111111-aa"]),
        (" 2 , 0 ", ["GPU-33333333-ee", "GPU-11111111-aa"]),
        ("0,7,1", ["GPU-11111111-aa"]),
        ("0,-1,1", ["GPU-11111111-aa"]),
        ("", []),
        ("NoDevFiles", []),
        ("GPU-3", ["GPU-33333333-ee"]),
        ("gpu-3", []),
        ("GPU-1111", []),
        ("GPU-11112", ["GPU-11112222-bb"]),
        ("MIG-99991111-dd", ["MIG-99991111-dd"]),
        ("MIG-GPU-33333333-ee/1/0", ["GPU-33333333-ee"]),
        ("1,1", []),
    ],
)
def test_what_cuda_would_show(setting, expected):
    assert [gpu.uuid for gpu in visible_gpus(GPUS, setting)] == expected


def test_the_setting_of_another_process_is_read():
    child = subprocess.Popen(
        [sys.executable, "-c", "input()"],
        stdin=subprocess.PIPE,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "GPU-ab,1"},
    )
    try:
        # For a moment after exec the kernel has no environment to show.
        deadline = time.monotonic() + 5
        while setting_of(child.pid) is None and time.monotonic() < deadline:
            time.sleep(0.01)
        assert setting_of(child.pid) == "GPU-ab,1"
    finally:
        child.communicate(b"\n")
    assert setting_of(child.pid) is None
