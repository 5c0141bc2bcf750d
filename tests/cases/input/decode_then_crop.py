"""Runs and code that have IN113, and that must stay quiet."""

from __future__ import annotations

from flatout.records.evidence import Evidence, WorkerProcesses
from flatout.records.machine import MachineUse, NotRunning
from flatout.records.report import HostUse, LineCost, Location
from tests.cases.code import SourceCase
from tests.cases.evidence import Case, live_state, loader, on_gpu, run, starved_run, worker_cost

_DEAR = loader(cost=worker_cost(fetch_ms_per_sample=12.0, busy_share=0.98))
_FULL = HostUse(cpu_cores=4.8, memory_peak=8 << 30)
_EVENTS = """import numpy as np
SIDE, FRAME = 64, 512

def rates(bits):
    counts = np.unpackbits(bits, axis=-1)
    return counts.reshape(8, -1, FRAME, FRAME).astype(np.float32)

class Events:
    def __getitem__(self, i):
        frame = rates(np.load(self.paths[i]))
        top, left = self.draw(FRAME - SIDE), self.draw(FRAME - SIDE)
        return frame[..., top : top + SIDE, left : left + SIDE]
"""
_PICTURES = """from PIL import Image
import numpy as np
class Pictures:
    def __getitem__(self, i):
        image = Image.open(self.paths[i])
        pixels = np.asarray(image.convert("RGB"))
        top, left = self.draw(pixels.shape)
        return pixels[top : top + 224, left : left + 224]
"""
_CROPPED_FIRST = """import numpy as np
class Events:
    def __getitem__(self, i):
        top, left = self.draw()
        bits = np.load(self.paths[i], mmap_mode="r")[..., top : top + 64, left : left + 64]
        counts = np.unpackbits(bits, axis=-1)
        return counts.astype(np.float32)
"""
_MOST_OF_IT = _EVENTS.replace("SIDE, FRAME = 64, 512", "FRAME = 512\nSIDE = 480")


# One window of a recording, which is read as a whole.
_RECORDINGS = """import numpy as np
class Windows:
    def __getitem__(self, i):
        start = self.draw(i)
        day = np.load(self.paths[i])
        return np.array(day[start : start + 2048])
"""
_ITEMS = _RECORDINGS.replace("np.load(self.paths[i])", "self.items[i]")
_CROWDING = loader(
    num_workers=1,
    batch_size=16,
    cost=worker_cost(workers=1, samples=1600, fetch_ms_per_sample=2.3, busy_share=0.43),
    processes=WorkerProcesses(cpu_share=0.4, threads=4.0),
)


def _crowded(by_own: float, source: str = _RECORDINGS) -> Evidence:
    """Nobody waits for a batch, but the worker and torch's threads are more than there are processors."""
    kept = NotRunning(by_own, by_own=by_own, by_others=0.0)
    return run(
        ms={"data": 2.0, "forward": 58.0, "backward": 26.0, "optimizer": 3.0},
        loaders=(_CROWDING,),
        cpus=2.0,
        samples=16.0,
        main_cpu_share=1.48,
        worker_lines=(LineCost(Location("data.py", 5), "__getitem__", "worker", 0.8, 1.9),),
        files={"data.py": source},
        live=live_state(num_threads=2),
        machine=MachineUse(2.0, 1.89, 0.0, 2.4, training=kept, helpers=kept),
    )


def _line_costs(*lines: tuple[int, float]) -> tuple[LineCost, ...]:
    return tuple(LineCost(Location("data.py", line), "rates", "worker", share, 12.1 * share) for line, share in lines)


def _at_the_limit(source: str, *lines: tuple[int, float]) -> Evidence:
    return starved_run(_DEAR, cpus=5.0, host=_FULL, worker_lines=_line_costs(*lines), files={"data.py": source})


CASES = (
    Case(
        "finds it when whole frames are unpacked for a small crop",
        _at_the_limit(_EVENTS, (6, 0.5), (5, 0.4)),
        found=True,
    ),
    Case(
        "quiet when an image file has to be decoded as a whole",
        _at_the_limit(_PICTURES, (6, 0.9)),
        found=False,
    ),
    Case(
        "quiet when the crop comes first",
        _at_the_limit(_CROPPED_FIRST, (6, 0.5), (7, 0.4)),
        found=False,
    ),
    Case(
        "quiet when nearly all of it is kept",
        _at_the_limit(_MOST_OF_IT, (7, 0.5), (6, 0.4)),
        found=False,
    ),
    Case("finds it when the worker has a processor that the training wants", _crowded(0.22), found=True),
    Case("quiet when there are processors for both", _crowded(0.01), found=False),
    Case("quiet when a window is cut out of what is in memory", _crowded(0.22, _ITEMS), found=False),
    Case(
        "quiet when nobody waits for it",
        run(gpu=on_gpu(), loaders=(_DEAR,), worker_lines=_line_costs((6, 0.9)), files={"data.py": _EVENTS}),
        found=False,
    ),
)

_TRAIN = """
loader = DataLoader(Events(paths), batch_size=8, num_workers=4)
for batch in loader:
    model(batch).backward()
    optimizer.step()
"""
_CUT = "top, left = self.draw()\n        "
_PART = "frame[top : top + 64, left : left + 64]"
_WHOLE = """
class Events(Dataset):
    def __getitem__(self, i):
        frame = np.load(self.paths[i])
        %s
"""
SOURCE_CASES = (
    SourceCase(
        "finds it when whole frames become floats",
        _WHOLE % f"frame = frame.astype(np.float32)\n        {_CUT}return {_PART}  # found" + _TRAIN,
    ),
    SourceCase(
        "quiet when the crop comes first",
        _WHOLE % f"{_CUT}part = {_PART}\n        return part.astype(np.float32) / 255" + _TRAIN,
    ),
    SourceCase(
        "quiet when nothing is done to the whole",
        _WHOLE % f"{_CUT}return {_PART}" + _TRAIN,
    ),
    SourceCase("quiet when nothing is cropped", _WHOLE % "return frame.astype(np.float32) / 255" + _TRAIN),
)
