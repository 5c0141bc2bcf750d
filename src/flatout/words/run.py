"""What is said of runs: notices, the checklist, their processors, what was watched, and how two of them compare."""

from __future__ import annotations

from .render import Words

TABLE: dict[str, Words] = {
    # What is missing from the recording.
    "run.samples_not_measured": Words(
        "samples/s not measured: the batch size could not be told ({ranks})", "未测量样本/秒：无法得知批大小（{ranks}）"
    ),
    "run.lines_not_measured": Words(
        "slow lines not measured: the line sampler recorded nothing (too short a run, or switched off)",
        "未测量慢的代码行：行采样器没有记录（运行太短，或已关闭）",
    ),
    "run.starvation_not_measured": Words(
        "GPU starvation not measured: no step was timed on the device",
        "未测量 GPU 缺数据的时间：没有在设备上为任何一步计时",
    ),
    "run.utilisation_not_measured": Words("GPU utilisation not measured", "未测量 GPU 利用率"),
    "run.source_not_measured": Words("{source} not measured: {why}", "未测量 {source}：{why}"),
    "run.sample_not_filed": Words(
        "a telemetry sample could not be filed: {error}", "有一次遥测采样无法写入文件：{error}"
    ),
    "run.samples_dropped": Words(
        "{count} telemetry samples are missing: the disk was full", "缺少 {count} 个遥测采样：磁盘已满"
    ),
    "run.records_dropped": Words(
        "process {process}: {count} records could not be written (disk full?)",
        "进程 {process}：有 {count} 条记录无法写入（磁盘已满？）",
    ),
    "run.records_dropped_in_gaps": Words(
        "process {process}: {count} records could not be written in {gaps} gap(s) (disk full?)",
        "进程 {process}：有 {count} 条记录无法写入，分布在 {gaps} 处（磁盘已满？）",
    ),
    "run.records_damaged": Words(
        "process {process}: {records} records and {texts} texts are damaged and left out",
        "进程 {process}：{records} 条记录和 {texts} 段文本已损坏，不予采用",
    ),
    "run.rows_lost": Words("telemetry: {rows} rows of {source} are lost", "遥测：{source} 丢失 {rows} 行"),
    "run.file_left_out": Words("left out: {why}", "不予采用：{why}"),
    "run.problem_not_judged": Words("{code} could not be judged ({error})", "无法判断 {code}（{error}）"),
    # What does not count, and how much does.
    "run.warmup": Words("{steps} steps, {seconds} ({causes})", "{steps} 步，{seconds}（{causes}）"),
    "run.warmup_not_explained": Words("{steps} steps, {seconds}", "{steps} 步，{seconds}"),
    "warmup.compile": Words("compile", "编译"),
    "warmup.cudnn_search": Words("cudnn search", "cudnn 搜索算法"),
    "warmup.workers": Words("workers starting", "工作进程启动"),
    "warmup.first_batch": Words("first batch", "第一个批次"),
    "warmup.first_step": Words("first step", "第一步"),
    "warmup.first_epoch": Words("first epoch", "第一个 epoch"),
    "warmup.prefetched": Words("batches made ahead", "预先准备好的批次"),
    "warmup.device_queue": Words("the device's queue filling", "设备队列填充"),
    "warmup.unexplained": Words("unexplained", "原因不明"),
    # What a part of the step is spent on.
    "part.model": Words("model", "模型计算"),
    "part.optimizer": Words("optimizer", "优化器"),
    "part.batch": Words("batches", "等待批次"),
    "part.copy": Words("copies", "拷贝"),
    "part.device": Words("waiting for the device", "等待设备"),
    "part.pause": Words("pauses", "训练暂停"),
    "part.gc": Words("gc", "垃圾回收"),
    "part.python": Words("other Python", "其他 Python 代码"),
    "part.native": Words("other native code", "其他原生代码"),
    "part.waiting": Words("other waiting", "其他等待"),
    "part.not_running": Words("no processor free", "没有空闲处理器"),
    "part.not_measured": Words("not measured", "未测量"),
    # Of which peak.
    "peak.measured": Words("as measured", "实测"),
    "peak.sheet": Words("by the data sheet", "按规格书"),
    # Rungs of the ladder.
    "ladder.step": Words("as it is", "现状"),
    "ladder.busy": Words("without waits", "没有等待"),
    "ladder.kernels": Words("best kernels", "最好的 kernel"),
    "ladder.precision": Words("half precision", "半精度"),
    "ladder.limit": Words("arithmetic alone", "只算运算"),
    # Kinds of kernels.
    "kernel.gemm": Words("matrix products", "矩阵乘法"),
    "kernel.convolution": Words("convolution", "卷积"),
    "kernel.attention": Words("attention", "注意力"),
    "kernel.recurrent": Words("recurrent layers", "循环层"),
    "kernel.normalisation": Words("normalisation", "归一化"),
    "kernel.pointwise": Words("pointwise", "逐元素运算"),
    "kernel.reduction": Words("reduction", "归约"),
    "kernel.indexing": Words("indexing", "索引"),
    "kernel.copy": Words("copies", "拷贝"),
    "kernel.layout": Words("layout changes", "布局转换"),
    "kernel.optimizer": Words("optimizer", "优化器"),
    "kernel.communication": Words("communication", "通信"),
    "kernel.other": Words("other", "其他"),
    "run.too_few_steps": Words(
        "{steps} steady steps are too few: the step time is known to ±{error:.0f}% only, and smaller predicted gains "
        "({withheld}) are left out; {needed} steps would tell",
        "稳定步只有 {steps} 步，太少：步时间的误差为 ±{error:.0f}%，更小的预测提升（{withheld} 个）已略去；"
        "运行 {needed} 步才能判断",
    ),
    "run.hardly_any_steps": Words(
        "{steps} steady steps are too few to judge the speed: let it run for {needed} steps",
        "稳定步只有 {steps} 步，不足以判断速度：请至少运行 {needed} 步",
    ),
    "run.speed_varied": Words(
        "the speed of the run changed: from {fast_ms:.3g} to {slow_ms:.3g} ms a step; all of it counts",
        "运行期间速度有变化：每步 {fast_ms:.3g} 到 {slow_ms:.3g} ms；全部计入",
    ),
    # How it ended.
    "run.ended_on_request": Words(
        "the look ended on request (--steps, --for), before the script did", "按要求（--steps、--for）提前结束了观察"
    ),
    "run.ended_on_request_code": Words(
        "asked to end, the script ended with exit code {code}", "被要求结束后，脚本以退出码 {code} 结束"
    ),
    "run.ranks_ended_early": Words("{ranks} did not come to a normal end", "{ranks} 没有正常结束"),
    "run.rank_failed_first": Words(
        "{rank} failed first, after {steps} steps (the run ended with {ending})",
        "{rank} 最先失败，在 {steps} 步之后（运行以{ending}结束）",
    ),
    "run.rank_failed_first_with": Words(
        "{rank} failed first, after {steps} steps: {error} (the run ended with {ending})",
        "{rank} 最先失败，在 {steps} 步之后：{error}（运行以{ending}结束）",
    ),
    "run.exit_code": Words("exit code {code}", "退出码 {code}"),
    "run.exit_signal": Words("exit code {code}, {signal}", "退出码 {code}，{signal}"),
    "run.no_optimizer_step": Words(
        "torch was at work, but no optimizer made a step", "torch 在工作，但没有任何优化器更新过"
    ),
    "run.python_isolated": Words(
        "python was started with {flag}, which keeps flatout out: leave it away to watch the script",
        "python 以 {flag} 启动，flatout 无法进入：去掉它才能观察脚本",
    ),
    "run.no_torch": Words(
        "no Python process below this command used an optimizer or a DataLoader of torch 2.4 or newer",
        "此命令下没有 Python 进程使用 torch 2.4 或更新版本的优化器或 DataLoader",
    ),
    "run.json_not_written": Words(
        "{file!r} could not be written ({error}); the same is in {path}",
        "无法写入 {file!r}（{error}）；同样的内容在 {path}",
    ),
    # What flatout did not get to do beside the script.
    "run.not_started": Words("the command could not be started", "无法启动该命令"),
    "run.live_needs_terminal": Words(
        "--live needs a terminal; the run went on without", "--live 需要终端；运行在没有它的情况下继续"
    ),
    "run.attempt_failed": Words("{what} ({error})", "{what}（{error}）"),
    "run.output_not_caught": Words("--live: the script's output cannot be caught", "--live：无法接收脚本的输出"),
    "run.output_not_replayed": Words(
        "--live: not all of the script's output could be printed", "--live：脚本的输出没有全部打印"
    ),
    "run.no_telemetry_no_view": Words("no telemetry and no live view", "没有遥测，也没有实时视图"),
    "run.no_telemetry": Words("no telemetry", "没有遥测"),
    "run.no_live_line": Words("no live line", "没有实时状态行"),
    "run.no_live_view": Words("no live view", "没有实时视图"),
    "run.no_metrics": Words("no metrics", "没有指标"),
    "run.no_dashboard": Words("no dashboard", "没有仪表板"),
    "run.view_ended_badly": Words("the live view did not end well", "实时视图没有正常结束"),
    "run.metrics_ended_badly": Words("the metrics did not end well", "指标服务没有正常结束"),
    "run.telemetry_ended_badly": Words("telemetry did not end well", "遥测没有正常结束"),
    "run.environment_not_captured": Words("environment not captured", "没有记录环境"),
    "run.gpu_names_late": Words("the GPUs' names are known at the end only", "GPU 名称到结束时才知道"),
    "run.neighbours_late": Words("names of other processes are known at the end only", "其他进程的名称到结束时才知道"),
    "run.filesystems_not_known": Words("file systems of the data not known", "不知道数据所在的文件系统"),
    # Where it is kept.
    "run.folder_not_writable": Words(
        "{folder!r} is not writable ({error}): the run is kept in {path!r}",
        "{folder!r} 不可写（{error}）：运行保存在 {path!r}",
    ),
    "run.folder_on_network": Words(
        "{folder!r} is on a network file system ({kind}): records are kept locally and copied at the end",
        "{folder!r} 在网络文件系统（{kind}）上：记录先存本地，结束时再复制",
    ),
    "run.records_not_copied": Words(
        "the records could not be copied to {path!r} ({error}); they are in {work!r}",
        "无法把记录复制到 {path!r}（{error}）；它们在 {work!r}",
    ),
    "run.imported": Words(
        "imported from a bundle: files that it names are not looked at here", "由打包文件导入：不读取其中提到的文件"
    ),
    # What a watched process itself noted.
    "run.stopped_watching": Words("stopped watching: {error}", "已停止监测：{error}"),
    "stages.compiled": Words("compiled", "已编译"),
    "stages.torchscript": Words("TorchScript", "TorchScript"),
    "stages.too_many_modules": Words("too many modules", "模块太多"),
    "stages.on_device": Words("on {device}", "在 {device} 上"),
    "stages.on_unknown_device": Words("on an unknown device", "在未知设备上"),
    "stages.reentrant": Words("checkpointed with use_reentrant=True", "重计算时用了 use_reentrant=True"),
    "stages.compiler_used": Words(
        "torch.compile is used, and hooks would disturb it", "用了 torch.compile，钩子会干扰它"
    ),
    "stages.none_to_time": Words("no stage of the model can be timed", "模型没有可计时的阶段"),
    "stages.always_evaluated": Words("there is an evaluation in every step", "每一步里都有评估"),
    "stages.calls_not_followed": Words("its calls could not be followed", "无法跟踪各阶段的调用"),
    "stages.run_too_short": Words("the run was too short to sample them", "运行太短，来不及采样"),
    "stages.failed": Words("{error}", "{error}"),
    # The stages of a model.
    "run.stage_left_out": Words("stages: {stage} left out ({why})", "阶段：不含 {stage}（{why}）"),
    "run.stages_not_measured": Words("stages not measured: {why}", "未测量各阶段：{why}"),
    "run.stages_stopped": Words("stages not measured any further: {why}", "不再继续测量各阶段：{why}"),
    # A profile.
    "profile.conflict": Words(
        "{dropped} is left out: {kept} was asked for after it, and only one of them can hold",
        "不采用 {dropped}：之后又要求了 {kept}，两者只能用一个",
    ),
    # Why NVML does not measure.
    "nvml.absent": Words("GPU not measured: {why}", "未测量 GPU：{why}"),
    "nvml.not_installed": Words(
        "nvidia-ml-py is not installed (pip install nvidia-ml-py)", "没有安装 nvidia-ml-py（pip install nvidia-ml-py）"
    ),
    "nvml.no_driver": Words(
        "no NVIDIA driver (libnvidia-ml.so) on this machine", "这台机器上没有 NVIDIA 驱动（libnvidia-ml.so）"
    ),
    "nvml.says": Words("NVML says {error}", "NVML 报告 {error}"),
    "nvml.failed": Words("NVML failed: {error}", "NVML 出错：{error}"),
    "nvml.of_gpu": Words("GPU {gpu}: {reasons}", "GPU {gpu}：{reasons}"),
    "nvml.both": Words("{first}; {second}", "{first}；{second}"),
    "nvml.mig_slice": Words(
        "a MIG slice has no utilisation, power or clocks of its own", "MIG 切片没有自己的利用率、功耗和频率"
    ),
    "nvml.mig_card": Words(
        "MIG is on, so utilisation is not measured for the card", "已开启 MIG，因此不测量整卡的利用率"
    ),
    "nvml.no_permission": Words("no permission to read {what}", "没有读取 {what} 的权限"),
    "nvml.lost": Words("lost: the driver no longer reaches it", "丢失：驱动已无法访问它"),
    "nvml.unreadable": Words("{what}: {error}", "{what}：{error}"),
    "nvml.none_visible": Words("no GPU is visible to this process", "此进程看不到任何 GPU"),
    "nvml.starting": Words("NVML is starting", "NVML 正在启动"),
    "nvml.silent": Words("NVML has not answered for {seconds:.0f} s", "NVML 已有 {seconds:.0f} s 没有应答"),
    # The checklist: what is asked for.
    "checklist.rate_known": Words("samples/s is known", "已知每秒样本数"),
    "checklist.nothing_gains": Words("nothing would gain 5%", "没有能带来 5% 提升的修改"),
    "checklist.starves": Words("the GPU starves for less than 5% of a step", "GPU 缺数据的时间少于一步的 5%"),
    "checklist.queued": Words("the GPU has work queued at 80% of launches", "80% 的发射时刻 GPU 仍有排队的工作"),
    "checklist.utilisation": Words("utilisation of 85% or more", "利用率不低于 85%"),
    "checklist.steady": Words("utilisation steady within 10 points", "利用率波动在 10 个百分点以内"),
    "checklist.wait": Words("the wait for a batch is short (10 ms, or 5%)", "等待批次的时间很短（10 ms 或 5%）"),
    "checklist.cadence": Words("evaluation, checkpoints, logging below 10%", "评估、检查点与日志低于 10%"),
    "checklist.sync": Words("waiting for results below 5%", "等待结果的时间低于 5%"),
    "checklist.gpu_memory": Words("GPU memory below 95%", "显存低于 95%"),
    "checklist.host_memory": Words("host memory below 85% of what there is", "主机内存低于可用量的 85%"),
    "checklist.processors": Words("processors below 90%", "处理器低于 90%"),
    "checklist.swap": Words("no swapping", "没有使用交换空间"),
    "checklist.oom": Words("nothing killed for want of memory", "没有进程因内存不足被终止"),
    "checklist.ended_well": Words("the script ended well", "脚本正常结束"),
    "checklist.own_cost": Words("flatout itself cost below 1%", "flatout 自身的开销低于 1%"),
    "checklist.loss": Words("the loss falls, without NaN", "损失在下降，且没有 NaN"),
    # And the figures of this run.
    "checklist.samples_per_s": Words("{rate:.3g} samples/s", "{rate:.3g} 样本/秒"),
    "checklist.ms_a_step": Words("{ms:.3g} ms a step", "每步 {ms:.3g} ms"),
    "checklist.gib_more": Words("{gib:.2f} GiB more", "增加 {gib:.2f} GiB"),
    "checklist.killed": Words("{count:.0f} killed", "终止 {count:.0f} 个"),
    "checklist.nothing_found": Words("nothing found", "没有发现"),
    "checklist.loss_unread": Words("flatout does not read your loss", "flatout 不读取你的损失"),
    # What became of a remedy in a run.
    "remedy_state.applied": Words("{id} = {value}", "{id} = {value}"),
    "remedy_state.told": Words("{name} {value}", "{name} {value}"),
    "remedy_state.applied_to": Words("{id} = {value} ({live})", "{id} = {value}（{live}）"),
    "remedy_state.refused": Words("{id}: not applied: {why}", "{id}：未应用：{why}"),
    "remedy_state.failed": Words("{id}: failed: {why}", "{id}：失败：{why}"),
    "remedy_state.reverted": Words("{id}: reverted after {step} steps: {why}", "{id}：{step} 步后撤销：{why}"),
    "out_of_memory": Words("out of memory", "内存不足"),
    # Of its processors: who else had them, and what that means for its figures.
    "machine.others": Words(
        "Other processes had {other:.1f} cores of {cores:.3g}: {who} ready to run but not running for {share:.0%} of "
        "the steady part because of them ({names}).",
        "其他进程占用了 {cores:.3g} 个核中的 {other:.1f} 个：因此{who}在稳定段有 {share:.0%} 的时间可以运行却没有运行"
        "（{names}）。",
    ),
    "machine.others_unmeasured": Words(
        "Other processes had {other:.1f} cores of {cores:.3g}, this run {own:.1f}, and none was free; for how long its "
        "threads waited is not measured ({names}).",
        "其他进程占用了 {cores:.3g} 个核中的 {other:.1f} 个，本次运行占用 {own:.1f} 个，没有空闲的核；"
        "其线程等待了多久未测量（{names}）。",
    ),
    "machine.steal": Words(
        "Other virtual machines took the processors: {who} stopped for {share:.0%} of the steady part.",
        "其他虚拟机占用了处理器：{who}在稳定段有 {share:.0%} 的时间被中断。",
    ),
    "machine.quota": Words(
        "The container's limit of {cores:.3g} cores stops this run: {who} ready to run but not running for {share:.0%} "
        "of the steady part.",
        "容器的 {cores:.3g} 核限额使本次运行停顿：{who}在稳定段有 {share:.0%} 的时间可以运行却没有运行。",
    ),
    "machine.training": Words("the training thread was", "训练线程"),
    "machine.helpers": Words("a thread that computes for the training was", "为训练计算的线程"),
    "machine.workers": Words("the loader's workers were", "加载器的 worker"),
    "machine.named": Words("{names}", "{names}"),
    "machine.neighbour": Words("{name} pid {pid}: {cores:.1f}", "{name} pid {pid}：{cores:.1f}"),
    "machine.unnamed": Words("which ones cannot be seen from here", "从这里看不到是哪些进程"),
    "machine.gpu_shared": Words(
        "other processes hold memory on the GPU ({count}); whether they compute on it is not measured",
        "另有进程占用该 GPU 的显存（{count} 个）；它们是否在其上计算未测量",
    ),
    "machine.waiting": Words(
        "a trial was disturbed; waiting up to {seconds:.0f} s for the machine to be quiet. {sentence}",
        "一次试验受到干扰；最多等待 {seconds:.0f} 秒，直到机器空闲。{sentence}",
    ),
    "machine.trial_again": Words("the machine is quiet: the trial is made again", "机器已空闲：重新进行该试验"),
    "machine.stays_busy": Words(
        "the machine stays busy: the trial counts as it is, with a wider interval",
        "机器仍然繁忙：该试验照样计入，区间更宽",
    ),
    "machine.trials_again": Words(
        "{again} trials were disturbed by others and made again when the machine was quiet",
        "有 {again} 次试验受到其他进程干扰，已在机器空闲时重新进行",
    ),
    "machine.trials_disturbed": Words(
        "{count} of {trials} trials were disturbed ({again} others were made again). {sentence} Disturbed trials do "
        "not count where there are undisturbed ones; where there are none, intervals are wider by what one side lost "
        "more.",
        "{trials} 次试验中有 {count} 次受到干扰（另有 {again} 次已重新进行）。{sentence}"
        "有未受干扰的试验时，受干扰的不计入；没有时，区间按一方多损失的部分放宽。",
    ),
    "machine.run_disturbed": Words("{run}: {sentence} Its interval is wider.", "{run}：{sentence}其区间已放宽。"),
    "machine.consequence": Words(
        "the machine was disturbed: speed and phases are those of the disturbed run, predicted gains are given wider; "
        "run it again when the machine is quiet",
        "机器受到干扰：速度与各阶段是受干扰时的数值，预测提升的区间已放宽；请在机器空闲时重新运行",
    ),
    # What `flatout watch` says of GPUs and host.
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
    # What `flatout compare` says of two arms of runs, and `flatout logs` of two logs.
    "compare.faster": Words(
        "{after} is faster than {before}: {gain} {unit}s/s", "{after} 比 {before} 快：{gain} {unit}s/s"
    ),
    "compare.slower": Words(
        "{after} is slower than {before}: {gain} {unit}s/s", "{after} 比 {before} 慢：{gain} {unit}s/s"
    ),
    "compare.no_difference": Words(
        "no sure difference between {before} and {after}: {gain} {unit}s/s",
        "{before} 与 {after} 没有确定的差别：{gain} {unit}s/s",
    ),
    "compare.not_measured": Words(
        "{before} and {after} cannot be compared in speed: too few steps after warm-up",
        "{before} 与 {after} 无法比较速度：预热之后的步数太少",
    ),
    # How far they compare.
    "compare.one_process": Words(
        "one process each: what processes differ by is assumed (1% each), not measured here; "
        "several runs of either, as {before},RUN2 {after},RUN3, would measure it",
        "每边只有一个进程：进程之间的差异是假定的（各 1%），没有实测；"
        "每边给几次运行即可测出，如 {before},RUN2 {after},RUN3",
    ),
    "compare.scripts_differ": Words("the scripts differ: {before} and {after}", "脚本不同：{before} 与 {after}"),
    "compare.devices_differ": Words("the devices differ: {before} and {after}", "设备不同：{before} 与 {after}"),
    "compare.batches_differ": Words(
        "batches differ in size ({before:.4g} and {after:.4g} samples a step): compare by samples, not by steps",
        "批大小不同（每步 {before:.4g} 与 {after:.4g} 个样本）：应按样本比较，不按步比较",
    ),
    "compare.by_steps": Words(
        "samples are not known in all of them, so steps are compared, whatever their size",
        "并非都知道样本数，因此按步比较，不论每步大小",
    ),
    "compare.run_failed": Words("{run} ended with exit code {code}", "{run} 以退出码 {code} 结束"),
    "compare.run_going_on": Words(
        "{run} is still being recorded: this is as far as it has got", "{run} 仍在记录中：这是到目前为止的情况"
    ),
    # Logs.
    "logs.no_difference": Words(
        "No clear difference: {change:+.1f}% {by}, within what each log varies by itself",
        "没有明显差别：{change:+.1f}% {by}，在每份日志自身的波动之内",
    ),
    "logs.same_pace": Words("Both logs have the same pace ({rate:.4g} {by})", "两份日志速度相同（{rate:.4g} {by}）"),
    "logs.second_faster": Words(
        "The second log is {change:.1f}% faster: {second:.4g} against {first:.4g} {by}",
        "第二份日志快 {change:.1f}%：{second:.4g} 对 {first:.4g} {by}",
    ),
    "logs.second_slower": Words(
        "The second log is {change:.1f}% slower: {second:.4g} against {first:.4g} {by}",
        "第二份日志慢 {change:.1f}%：{second:.4g} 对 {first:.4g} {by}",
    ),
    "logs.batches_unknown": Words(
        "it/s compare only between equal batches; if they differ, give --batch-size for each file, in order",
        "it/s 只能在批大小相同时比较；若不同，请按文件顺序分别给出 --batch-size",
    ),
    "logs.batches_differ": Words(
        "The batches differ: {change:+.0f}% it/s says nothing", "批大小不同：{change:+.0f}% it/s 说明不了什么"
    ),
    "logs.batches_differ_flat": Words(
        "The batches differ: {change:+.0f}% it/s says nothing. Equal samples/s at different batches point at the input"
        " side rather than the GPU; `flatout run` on the script tells",
        "批大小不同：{change:+.0f}% it/s 说明不了什么。批大小不同而样本/秒相同，问题多半在数据输入而不在 GPU；"
        "用 `flatout run` 运行脚本即可知道",
    ),
    "logs.batch_given": Words("--batch-size", "--batch-size"),
    "logs.batch_printed": Words("printed with each reading", "每条读数都打印了"),
    "logs.batch_from_rates": Words("samples/s over it/s", "样本/秒 除以 it/s"),
    # Where `flatout memory` has the size of a sample from.
    "memory.as_given": Words("as given", "按给定值"),
    "memory.copied": Words(
        "bytes copied to the GPU in the run, over its samples", "运行中拷贝到 GPU 的字节数除以样本数"
    ),
}
