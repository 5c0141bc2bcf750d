"""The CSV that the guides' `nvidia-smi --query-gpu=… --format=csv -l 1` writes, both ways."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from flatout.errors import FlatoutError
from flatout.records.sample import GpuFacts, GpuReading, GpuSample, HostSample, ProcessSample, Tick
from flatout.report.gpu_csv import HEADER, CsvFile, csv_lines
from tests.unit.telemetry.ticks import summarise_ticks

SMI_HEADER = "timestamp, utilization.gpu [%], utilization.memory [%], memory.used [MiB], memory.total [MiB]"
WHEN = datetime(2025, 11, 15, 12, 0, 0, 123456)


def read(tmp_path, text: str | bytes):
    path = tmp_path / "gpu_usage.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    file = CsvFile(path)
    return list(file.ticks()), file.skipped_lines


def smi_line(second: int, util: str = "65 %", gpu_ms: int = 0) -> str:
    return f"2025/11/15 12:00:{second:02d}.{gpu_ms:03d}, {util}, 20 %, 5120 MiB, 24576 MiB"


def test_the_header_begins_with_the_loggers_columns():
    assert HEADER.startswith(SMI_HEADER + ", ")


def test_nvidia_smis_file_is_read(tmp_path):
    ticks, skipped = read(tmp_path, "\n".join([SMI_HEADER, smi_line(0), smi_line(1, "95 %")]) + "\n")

    assert skipped == 0 and [tick.gpu.gpus[0].util_percent for tick in ticks] == [65, 95]
    assert ticks[1].t_s - ticks[0].t_s == pytest.approx(1.0)
    assert ticks[0].gpu.gpus[0].memory_used_bytes == 5 << 30 and ticks[0].gpu.gpus[0].power_w is None


@pytest.mark.parametrize("header", [SMI_HEADER + "\r\n", ""], ids=["nounits", "noheader,nounits"])
def test_files_without_units_or_header_are_read(tmp_path, header):
    ticks, skipped = read(tmp_path, header + "2025/11/15 12:00:00.000, 65, 20, 5120, 24576\r\n")

    assert skipped == 0 and ticks[0].gpu.gpus[0].util_percent == 65


def test_powershells_utf16_is_read(tmp_path):
    ticks, _ = read(tmp_path, f"{SMI_HEADER}\r\n{smi_line(0)}\r\n".encode("utf-16"))

    assert len(ticks) == 1


def test_broken_and_truncated_lines_are_skipped_and_counted(tmp_path):
    lines = [
        SMI_HEADER,
        smi_line(0),
        smi_line(1)[:30],
        "garbage",
        smi_line(2, "ERR!"),
        smi_line(3, "700 %"),
        smi_line(4),
    ]

    ticks, skipped = read(tmp_path, "\n".join([*lines, "2025/11/15 12:0"]))

    assert len(ticks) == 2 and skipped == 5


def test_not_available_is_not_measured_and_not_broken(tmp_path):
    ticks, skipped = read(tmp_path, f"{SMI_HEADER}\n{smi_line(0, '[N/A]')}\n{smi_line(1, '[Not Supported]')}\n")

    assert skipped == 0 and [tick.gpu.gpus[0].util_percent for tick in ticks] == [None, None]


def test_two_gpus_in_one_round_are_told_apart(tmp_path):
    lines = [SMI_HEADER]
    for second in range(6):
        lines += [smi_line(second, "90 %"), smi_line(second, "10 %", gpu_ms=3)]

    ticks, _ = read(tmp_path, "\n".join(lines))

    summary = summarise_ticks(ticks)
    assert [gpu.util_percent.mean for gpu in summary.gpus] == [90, 10]


def test_gpus_are_told_apart_by_uuid(tmp_path):
    header = "timestamp, uuid, utilization.gpu [%]\n"
    lines = [f"2025/11/15 12:00:0{s}.000, GPU-{u}, {v} %" for s in range(6) for u, v in (("a", 80), ("b", 20))]

    ticks, _ = read(tmp_path, header + "\n".join(lines))

    assert [gpu.util_percent.mean for gpu in summarise_ticks(ticks).gpus] == [80, 20]


def test_what_we_write_reads_back_to_the_same_summary(tmp_path):
    written = []
    lines = [HEADER]
    for second in range(8):
        gpus = (
            GpuSample(0, 90.0, 40.0, 5 << 30, 24 << 30, power_w=250.0, power_limit_w=300.0, sm_active_share=0.5),
            GpuSample(1),
        )
        tick = Tick(
            float(second),
            gpu=GpuReading(float(second), gpus, (GpuFacts(0, 0, "a", "x", False), GpuFacts(1, 1, "b", "x", False))),
            host=HostSample(
                cpu_share=0.25, iowait_share=0.0, memory_available_bytes=1 << 30, memory_total_bytes=4 << 30
            ),
            processes=(
                ProcessSample(5, "main", 0.75),
                ProcessSample(6, "worker", 0.2),
                ProcessSample(7, "worker", 0.4),
            ),
        )
        written.append(tick)
        lines += csv_lines(tick, WHEN + timedelta(seconds=second))

    ticks, skipped = read(tmp_path, "\n".join(lines))

    before, after = summarise_ticks(written), summarise_ticks(ticks)
    assert skipped == 0 and after.gpus[0].util_percent == before.gpus[0].util_percent
    assert after.gpus[0].power_share.mean == pytest.approx(before.gpus[0].power_share.mean)
    assert after.gpus[0].status == before.gpus[0].status and after.host.workers == 2
    assert after.host.worker_cpu_share.mean == pytest.approx(0.3) and after.host.main_cpu_share.mean == 0.75
    assert after.duration_s == before.duration_s


def test_without_a_gpu_the_host_is_written_and_the_gpu_is_not_available():
    (line,) = csv_lines(Tick(0.0, gpu=GpuReading(0.0), host=HostSample(cpu_share=0.5)), WHEN)

    assert line.startswith("2025/11/15 12:00:00.123, [N/A], [N/A], [N/A], [N/A], ") and "50.0 %" in line
    assert line.count(",") == HEADER.count(",")


def test_nvidia_smis_number_stands_in_the_index_column():
    reading = GpuReading(0.0, (GpuSample(0, 5.0),), (GpuFacts(0, 3, "u", "n", False),))

    (line,) = csv_lines(Tick(0.0, gpu=reading), WHEN)

    assert line.split(", ")[5] == "3"


def test_a_file_with_nothing_to_read_is_an_error_with_the_way_out(tmp_path):
    with pytest.raises(FlatoutError, match=r"holds no line that can be read.*nvidia-smi"):
        read(tmp_path, "hello\nworld\n")
    with pytest.raises(FlatoutError, match="cannot read"):
        CsvFile(tmp_path / "none.csv")
