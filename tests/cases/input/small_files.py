"""Runs that have IN114, and that must stay quiet."""

from __future__ import annotations

from flatout.records.evidence import Evidence
from flatout.records.report import HostUse, LineCost, Location
from tests.cases.evidence import Case, loader, on_gpu, run, starved_run, worker_cost

_DEAR = loader(cost=worker_cost(fetch_ms_per_sample=1.5, busy_share=0.98), batch_size=256)
_AT = Location("data.py", 12)


def _run_reading(text: str, size: float | None, share: float = 0.8, ms: float = 1.3) -> Evidence:
    return starved_run(
        _DEAR,
        samples=256.0,
        cpus=5.0,
        host=HostUse(cpu_cores=4.8, memory_peak=8 << 30),
        worker_lines=(LineCost(_AT, "__getitem__", "worker", share, ms),),
        source={("data.py", 12): text},
        file_bytes=size,
    )


_PARSES = Location("data.py", 13)
CASES = (
    Case(
        "finds it when what is in the file is parsed on the next line",
        starved_run(
            _DEAR,
            samples=256.0,
            cpus=5.0,
            host=HostUse(cpu_cores=4.8, memory_peak=8 << 30),
            worker_lines=(
                LineCost(_AT, "__getitem__", "worker", 0.4, 0.6),
                LineCost(_PARSES, "__getitem__", "worker", 0.5, 0.8),
            ),
            source={("data.py", 12): "with open(self.paths[i]) as file:", ("data.py", 13): "x = json.load(file)"},
            file_bytes=4096.0,
        ),
        found=True,
    ),
    Case(
        "finds it when every sample is a file of four kilobytes",
        _run_reading("x = torch.from_numpy(np.load(self.paths[i]))", 4096.0),
        found=True,
    ),
    Case("quiet when the files are large", _run_reading("x = np.load(self.paths[i])", 3e6), found=False),
    Case("quiet when their size is not known", _run_reading("x = np.load(self.paths[i])", None), found=False),
    Case(
        "quiet when images are decoded", _run_reading("x = Image.open(self.paths[i]).convert('RGB')", 9e4), found=False
    ),
    Case("quiet when it reads at full speed", _run_reading("x = np.load(self.paths[i])", 2.5e5, ms=1.0), found=False),
    Case(
        "quiet when other lines take the time",
        _run_reading("x = np.load(self.paths[i])", 4096.0, 0.2, 0.3),
        found=False,
    ),
    Case(
        "quiet when the samples come in time",
        run(gpu=on_gpu(), loaders=(_DEAR,), source={("data.py", 12): "np.load(p)"}, file_bytes=4096.0),
        found=False,
    ),
)
