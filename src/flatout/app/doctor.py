"""What this machine, this interpreter and its torch offer flatout, each as one line with what to do about it."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from flatout.launch import environment
from flatout.launch.process import child_environment, interpreter
from flatout.launch.roofline import cached_roofline, keep_roofline, measure_roofline, roofline_of
from flatout.records.roofline import PRECISIONS, Roofline
from flatout.records.sample import GpuReading
from flatout.telemetry.cgroup import CgroupSampler
from flatout.telemetry.disk import filesystem_of
from flatout.telemetry.nvml import NvmlSampler
from flatout.words import english

State = Literal["ok", "warn", "missing", "broken"]

_OLDEST_TORCH = (2, 4)
_PROBE_LIMIT_S = 180.0
_NVML_LIMIT_S = 5.0
# Runs in the user's interpreter, below the bootstrap: any Python, standard library only.
_PROBE = """
import json, os, sys
found = {"python": sys.version.split()[0], "attached": "_flatout_attach" in sys.modules}
try:
    import torch
    found["torch"] = str(torch.__version__)
    found["cuda_build"] = torch.version.cuda
    found["cuda"] = torch.cuda.is_available()
    found["gpus"] = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if found["cuda"] else []
    weight = torch.nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    for _ in range(2):
        weight.sum().backward()
        optimizer.step()
except ModuleNotFoundError:
    found["torch"] = None
except Exception as error:
    found["torch_error"] = type(error).__name__ + ": " + str(error)[:200]
# Through a file: what a sitecustomize or torch prints must not get in the way.
with open(sys.argv[1], "w") as file:
    json.dump(found, file)
"""


@dataclass(frozen=True, slots=True)
class Check:
    """One line of the examination. `advice` is what to do unless all is well."""

    name: str
    state: State
    value: str
    advice: str = ""


def run_doctor(python: str | None, cwd: Path) -> list[Check]:
    """Everything, in the order it is shown."""
    return [*_interpreter(interpreter(python)), *_gpus(), *_host(cwd)]


def _interpreter(python: str) -> Iterator[Check]:
    with tempfile.TemporaryDirectory(prefix="flatout-doctor-") as folder:
        found, trouble = _probe(python, Path(folder))
        recorded = any((Path(folder) / "proc").glob("*.rec"))
    if found is None:
        yield Check("python", "broken", f"{python}: {trouble}", "give another interpreter with --python")
        return
    yield Check("python", "ok", f"{found['python']} ({python})")
    yield _torch(found)
    yield from _rooflines(python, found)
    yield _bootstrap(found, recorded)


def _probe(python: str, folder: Path) -> tuple[dict[str, Any] | None, str]:
    (folder / "proc").mkdir()
    answer = folder / "answer.json"
    try:
        done = subprocess.run(
            [python, "-c", _PROBE, str(answer)],
            env=child_environment(os.environ, folder, {}),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROBE_LIMIT_S,
            check=False,
        )
        return json.loads(answer.read_text()), ""
    except subprocess.TimeoutExpired:
        return None, f"no answer within {_PROBE_LIMIT_S:.0f} s"
    except FileNotFoundError:
        last = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
        return None, f"exit code {done.returncode} {' '.join(last)}".strip()
    except (OSError, ValueError) as error:
        return None, str(error)


def _torch(found: dict[str, Any]) -> Check:
    if "torch_error" in found:
        return Check("torch", "broken", found["torch_error"], "reinstall torch in this interpreter")
    version = found["torch"]
    if version is None:
        return Check(
            "torch", "missing", "not in this interpreter", "flatout run --python PATH train.py uses the one that has it"
        )
    if _version(version) < _OLDEST_TORCH:
        return Check("torch", "warn", version, "older than 2.4: scripts run unwatched; upgrade torch to watch them")
    built = f"CUDA {found['cuda_build']}" if found["cuda_build"] else "CPU build"
    value = f"{version}, {built}"
    if found["cuda"]:
        return Check("torch", "ok", f"{value}, {', '.join(found['gpus'])}")
    if found["cuda_build"]:
        return Check("torch", "warn", f"{value}, no GPU to be seen", "check the driver and CUDA_VISIBLE_DEVICES")
    return Check("torch", "ok", value)


def _rooflines(python: str, found: dict[str, Any]) -> Iterator[Check]:
    """What each kind of GPU can do. Measured here once; other verbs look at what was kept."""
    if "torch_error" in found:
        return
    for name in dict.fromkeys(found.get("gpus", ())):
        roofline = cached_roofline(name, found["torch"])
        if roofline is None:
            roofline = measure_roofline(python, found["gpus"].index(name))
            if roofline is not None:
                keep_roofline(roofline)
        if roofline is not None:
            yield Check("roofline", "ok", f"{name}: {_figures(roofline)}")
            continue
        sheet = roofline_of(name, found["torch"])
        value = f"{name}: not measured" + (f"; by its data sheet {_figures(sheet)}" if sheet else "")
        yield Check("roofline", "warn", value, "needs 4 GiB of free GPU memory; end what else uses it, and ask again")


def _figures(roofline: Roofline) -> str:
    rates = [f"{name} {roofline.tflops[name]:.4g}" for name in PRECISIONS if name in roofline.tflops]
    launch = "" if roofline.launch_us is None else f", {roofline.launch_us:.1f} µs a launch"
    return f"{', '.join(rates)} TFLOP/s, {roofline.memory_gb_s:,.0f} GB/s{launch}"


def _version(text: str) -> tuple[int, int]:
    major, _, rest = text.partition(".")
    minor = rest.partition(".")[0]
    return (int(major), int(minor)) if major.isdigit() and minor.isdigit() else (0, 0)


def _bootstrap(found: dict[str, Any], recorded: bool) -> Check:
    if not found["attached"]:
        return Check(
            "attach",
            "broken",
            "the bootstrap did not run in a child interpreter",
            "is PYTHONPATH honoured (no -I, -E, -S or PYTHONSAFEPATH-like wrapper around python)?",
        )
    if found.get("torch") and _version(found["torch"]) >= _OLDEST_TORCH and not recorded:
        return Check("attach", "broken", "a child that trained recorded nothing", "please report it with flatout -V")
    return Check("attach", "ok", "a child interpreter was reached" + (", its steps recorded" if recorded else ""))


def _gpus() -> Iterator[Check]:
    reading = _gpu_reading()
    if not reading.facts:
        yield Check(
            "GPU",
            "missing",
            english(reading.reason or "none to be seen"),
            "without NVML the GPU is not measured",
        )
        return
    yield Check("driver", "ok", reading.driver or "version not known")
    for facts, sample in zip(reading.facts, reading.gpus, strict=False):
        memory = "" if sample.memory_total_bytes is None else f", {sample.memory_total_bytes / 2**30:.0f} GiB"
        yield Check(f"GPU {facts.gpu}", "ok", f"{facts.name}{memory}{' (a MIG slice)' if facts.is_mig else ''}")
        if sample.util_percent is None:
            yield Check(
                "NVML",
                "warn",
                "utilisation not measured",
                english(reading.reason or "ask for permission to read it"),
            )
        if sample.sm_active_share is None:
            yield Check("GPM", "warn", "SM and tensor activity not measured", "needs Hopper or newer, and driver 535")
        else:
            yield Check("GPM", "ok", "SM and tensor activity are measured")


def _gpu_reading() -> GpuReading:
    """A reading that had time for rates: activity is known from the second look on."""
    sampler = NvmlSampler(interval_s=0.1, setting=os.environ.get("CUDA_VISIBLE_DEVICES"))
    sampler.start()
    deadline_s = time.perf_counter() + _NVML_LIMIT_S
    fresh = 0
    while (reading := sampler.sample()).gpus or not reading.facts:
        fresh += reading.fresh
        if fresh >= 4 or time.perf_counter() > deadline_s or (reading.fresh and not reading.facts):
            break
        time.sleep(0.05)
    sampler.stop()
    return reading


def _host(cwd: Path) -> Iterator[Check]:
    facts, limits = environment.machine_facts(), CgroupSampler().sample()
    yield _cpus(facts, limits.cpu_quota_cores)
    total, limit = facts["memory_bytes"], limits.memory_limit_bytes
    if isinstance(total, int):
        value = f"{total / 2**30:.1f} GiB"
        if limit is not None and limit < total:
            value += f", limited to {limit / 2**30:.1f} GiB by the container"
        yield Check("memory", "ok", value)
    yield _shared_memory(facts["shm_bytes"])
    yield _folder(cwd)


def _cpus(facts: dict[str, object], quota: float | None) -> Check:
    allowed = facts["cpus_allowed"] or facts["cpus"]
    value = f"{allowed} of {facts['cpus']}"
    if quota is not None:
        value += f", quota {quota:.1f} cores"
    if facts["cpu_model"]:
        value += f" ({facts['cpu_model']})"
    usable = min(quota or 1e9, float(str(allowed)))
    if usable < 2:
        return Check("CPUs", "warn", value, "fewer than 2: loader workers will compete with the training process")
    return Check("CPUs", "ok", value)


def _shared_memory(size: object) -> Check:
    if not isinstance(size, int):
        return Check("/dev/shm", "missing", "not there", "loader workers need it; use num_workers=0 or mount it")
    value = f"{size / 2**20:,.0f} MiB"
    if size < 1 << 30:
        return Check("/dev/shm", "warn", value, "small for loader workers; docker run --shm-size=8g")
    return Check("/dev/shm", "ok", value)


def _folder(cwd: Path) -> Check:
    facts = filesystem_of(cwd)
    value = facts.type if facts else "unknown file system"
    if not os.access(cwd, os.W_OK):
        return Check("folder", "warn", f"{cwd} ({value}) is read-only", "runs are filed elsewhere; choose with --out")
    if facts and facts.is_network:
        return Check("folder", "warn", f"{cwd} ({value})", "a network file system: keep data on a local disk")
    return Check("folder", "ok", f"{cwd} ({value})")
