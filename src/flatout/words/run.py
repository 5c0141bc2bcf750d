"""What is said of a run: notices on what could not be measured, its checklist, and what a profile leaves out."""

from __future__ import annotations

from .table import Words

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
    # How it ended.
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
}
