"""What `flatout watch` says of GPUs and host."""

from __future__ import annotations

from .table import Words

TABLE: dict[str, Words] = {
    "monitor.not_measured": Words("utilisation was not measured", "没有测量利用率"),
    "monitor.too_short": Words(
        "some kernel ran {util:.0f}% of the time in {readings} readings, too few for a verdict: watch longer",
        "{readings} 次读数中有 kernel 运行的时间占 {util:.0f}%，读数太少，无法判断：请观察更久",
    ),
    "monitor.nearly_idle": Words(
        "next to idle: some kernel ran {util:.0f}% of the time", "几乎空闲：有 kernel 运行的时间占 {util:.0f}%"
    ),
    "monitor.idle": Words(
        "some kernel ran {util:.0f}% of the time: the GPU waits for something else about {idle:.0f}% of the time",
        "有 kernel 运行的时间占 {util:.0f}%：GPU 约有 {idle:.0f}% 的时间在等待别的东西",
    ),
    "monitor.room": Words(
        "some kernel ran {util:.0f}% of the time, below the usual target of 85-95%: there is room",
        "有 kernel 运行的时间占 {util:.0f}%，低于通常的目标 85-95%：还有余地",
    ),
    "monitor.light": Words(
        "some kernel ran {util:.0f}% of the time, but {why}: small kernels or memory traffic, not a fully used GPU",
        "有 kernel 运行的时间占 {util:.0f}%，但{why}：是小 kernel 或访存，GPU 并未充分利用",
    ),
    "monitor.low_power": Words("power was {share:.0f}% of its limit", "功耗只有上限的 {share:.0f}%"),
    "monitor.low_sm": Words("SMs were {share:.0f}% active", "SM 活跃度只有 {share:.0f}%"),
    "monitor.both": Words("{first} and {second}", "{first}，{second}"),
    "monitor.unsteady": Words(
        "some kernel ran {util:.0f}% of the time on average, but it fluctuates by {points:.0f} points"
        " (target: below 10)",
        "有 kernel 运行的时间平均占 {util:.0f}%，但波动达 {points:.0f} 个百分点（目标：低于 10）",
    ),
    "monitor.on_target": Words(
        "some kernel ran {util:.0f}% of the time, steadily: within the usual targets (85-95%, fluctuation below 10"
        " points)",
        "有 kernel 运行的时间占 {util:.0f}%，且稳定：在通常的目标之内（85-95%，波动低于 10 个百分点）",
    ),
    # What else deserves a line.
    "monitor.memory_nearly_full": Words(
        "GPU {gpu}: memory peaked at {peak:.0%}: an out-of-memory error is near",
        "GPU {gpu}：显存峰值 {peak:.0%}：接近显存不足",
    ),
    "monitor.memory_has_room": Words(
        "GPU {gpu}: memory peaked at {peak:.0%}: a larger batch fits; whether it pays, samples/s tell",
        "GPU {gpu}：显存峰值 {peak:.0%}：可以用更大的批次；是否划算看样本/秒",
    ),
    "monitor.hot": Words(
        "GPU {gpu}: {celsius:.0f} °C at its hottest (target: below 80)",
        "GPU {gpu}：最高 {celsius:.0f} °C（目标：低于 80）",
    ),
    "monitor.throttled": Words(
        "GPU {gpu}: clocks held down by {reason} in {share:.0%} of readings",
        "GPU {gpu}：{share:.0%} 的读数中频率被压低，原因：{reason}",
    ),
    "monitor.cpu_full": Words(
        "CPU {share:.0%} busy on average: no cores are left; more workers will not help",
        "CPU 平均占用 {share:.0%}：没有空闲的核；增加 worker 没有帮助",
    ),
    "monitor.storage_slow": Words(
        "cores waited for storage {share:.0%} of the time: the data may be read too slowly",
        "CPU 核有 {share:.0%} 的时间在等待存储：数据可能读得太慢",
    ),
    "monitor.host_memory_high": Words(
        "system memory peaked at {share:.1%}: smaller caches or fewer workers are safer",
        "系统内存峰值 {share:.1%}：更小的缓存或更少的 worker 更安全",
    ),
    "monitor.main_process_busy": Words(
        "the main process used {share:.0%} of a core (usual: 50-80%): Python itself may be the limit",
        "主进程用了一个核的 {share:.0%}（通常 50-80%）：瓶颈可能就是 Python",
    ),
    "monitor.workers_busy": Words(
        "each worker used {share:.0%} of a core: CPU-bound ({workers} workers)",
        "每个 worker 用了一个核的 {share:.0%}：受限于 CPU（{workers} 个 worker）",
    ),
    "monitor.workers_busy_of": Words(
        "each worker used {share:.0%} of a core: CPU-bound ({workers} workers, {cores:g} cores allowed)",
        "每个 worker 用了一个核的 {share:.0%}：受限于 CPU（{workers} 个 worker，可用 {cores:g} 个核）",
    ),
}
