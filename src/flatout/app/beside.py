"""What goes on beside the running script: telemetry into the run's files, and the view on the terminal.

Nothing here may reach the script: each part is tried on its own, and what fails leaves one line behind.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flatout.app import environment
from flatout.app.live import Live
from flatout.records.sample import Tick
from flatout.store.rows import RowWriter
from flatout.telemetry.cgroup import CgroupSampler
from flatout.telemetry.disk import filesystem_of
from flatout.telemetry.rows import columns, rows
from flatout.telemetry.sampling import Sampling

_PACKAGE = Path(__file__).resolve().parents[1]


class Notices(list[str]):
    """Lines for the user on what is missing."""

    @contextmanager
    def unless(self, what: str) -> Iterator[None]:
        """Try something; if it fails, say which part is missing and go on."""
        try:
            yield
        except Exception as error:
            self.append(f"{what}: {type(error).__name__}: {error}")


class Filing:
    """Files each sample under its source. A file is made when its first row comes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers: dict[str, RowWriter | None] = {}

    def on_tick(self, tick: Tick) -> None:
        for source, lines in rows(tick).items():
            writer = self._writer(source)
            for line in lines if writer else ():
                writer.append(line)  # type: ignore[union-attr]

    def _writer(self, source: str) -> RowWriter | None:
        if source not in self._writers:
            # Set first: a file that cannot be made is not tried again at every tick.
            self._writers[source] = None
            self._writers[source] = RowWriter(self._folder / f"{source}.rows", columns(source))
        return self._writers[source]

    def close(self) -> int:
        """Returns how many rows did not fit on the disk."""
        writers = [writer for writer in self._writers.values() if writer is not None]
        for writer in writers:
            writer.close()
        return sum(writer.dropped for writer in writers)


class Beside:
    """Telemetry and view of one run."""

    def __init__(self, work: Path, notices: Notices) -> None:
        self._work = work
        self._notices = notices
        self._filing = Filing(work / "telemetry")
        self._sampling: Sampling | None = None
        self._live: Live | None = None

    def start_sampling(self, pid: int, interval_s: float) -> None:
        with self._notices.unless("no telemetry"):
            self._sampling = Sampling(pid, interval_s, self._on_tick)
            self._sampling.start()

    def start_live(self, make: Callable[[], Live]) -> None:
        with self._notices.unless("no live view"):
            self._live = make()

    def _on_tick(self, tick: Tick) -> None:
        if self._live is not None:
            self._live.on_tick(tick)
        self._filing.on_tick(tick)

    def stop(self) -> None:
        with self._notices.unless("live view"):
            if self._live is not None:
                self._live.close()
        with self._notices.unless("telemetry"):
            if self._sampling is not None:
                self._sampling.stop()
                self._notices += self._sampling.notices
        dropped = self._filing.close()
        if dropped:
            self._notices.append(f"{dropped} telemetry samples are missing: the disk was full")

    def measured(self) -> dict[str, Any]:
        """What telemetry learnt of the machine: GPUs, driver, and where the data files live."""
        sampling = self._sampling
        if sampling is None:
            return {}
        found: dict[str, Any] = {
            "gpus": [facts.name for facts in sampling.gpu_facts],
            "driver": sampling.driver,
            "telemetry_ms_per_tick": sampling.cost.cpu_ms_per_tick,
        }
        ours = (str(self._work) + os.sep, str(_PACKAGE) + os.sep)
        found["data_filesystems"] = data_filesystems([f for f in sampling.data_files if not f.startswith(ours)])
        return found


def data_filesystems(files: Sequence[str]) -> list[dict[str, Any]]:
    """The file systems these files are on, with how many of them each holds."""
    found: dict[str, dict[str, Any]] = {}
    # A folder stands for its files: asking the kernel once each would be slow on a network disk.
    for folder in sorted({os.path.dirname(file) for file in files}):
        facts = filesystem_of(folder)
        if facts is None:
            continue
        entry = found.setdefault(
            facts.mount_point,
            {
                "mount_point": facts.mount_point,
                "type": facts.type,
                "is_network": facts.is_network,
                "is_rotational": facts.is_rotational,
                "files": 0,
            },
        )
        entry["files"] += sum(os.path.dirname(file) == folder for file in files)
    return list(found.values())


def captured_environment(cwd: Path) -> dict[str, Any]:
    """Machine, limits, commit and variables, as they are when the run begins."""
    limits = CgroupSampler().sample()
    return {
        **environment.machine(),
        "cpu_quota_cores": limits.cpu_quota_cores,
        "memory_limit_bytes": limits.memory_limit_bytes,
        "git_commit": environment.git_commit(cwd),
        "variables": environment.variables(os.environ),
    }
