"""What experiments say: why a remedy was tried, kept or not, how trials ended, and what they prove."""

from __future__ import annotations

from .render import Words

TABLE: dict[str, Words] = {
    # Gains.
    "gain.times": Words("×{ratio:.3g}", "×{ratio:.3g}"),
    "gain.percent": Words("{percent:+.1f}%", "{percent:+.1f}%"),
    "gain.with_interval": Words("{mid} ({low} … {high})", "{mid} ({low} … {high})"),
    # How a trial ended.
    "ending.stopped": Words("stopped", "按计划停止"),
    "ending.finished": Words("finished", "正常结束"),
    "ending.crashed": Words("crashed", "崩溃"),
    "ending.out_of_memory": Words("out of memory", "内存不足"),
    "ending.hung": Words("hung", "卡住"),
    "ending.out_of_time": Words("out of time", "超时"),
    "ending.not_finite": Words("not finite", "出现非有限值"),
    "ending.not_trained": Words("not trained", "没有训练"),
    "trial.ended": Words("{ending}: {why}", "{ending}：{why}"),
    "trial.cut_off": Words("cut off after {wall_s:.0f} s", "{wall_s:.0f} s 后被终止"),
    "trial.cut_off_for_memory": Words(
        "cut off after {wall_s:.0f} s, when hardly any memory was left", "{wall_s:.0f} s 后因内存几乎耗尽而被终止"
    ),
    "trial.no_step": Words("no optimizer made a step", "没有任何优化器更新过"),
    "trial.loss_not_finite": Words("the loss of pass {step} is {loss}", "第 {step} 次反向传播的损失是 {loss}"),
    "trial.killed": Words("the kernel killed {who} for want of memory", "内核因内存不足终止了{who}"),
    "trial.killed_at_limit": Words(
        "the kernel killed {who} for want of memory, {limit_gib:.1f} GiB are all there may be here",
        "内核因内存不足终止了{who}，这里最多只有 {limit_gib:.1f} GiB",
    ),
    "trial.the_training": Words("the training", "训练进程"),
    "trial.a_worker": Words("a loader's worker", "加载器的一个 worker"),
    "trial.a_process": Words("a process of it", "它的一个进程"),
    "trial.exit_code": Words("exit code {code}", "退出码 {code}"),
    "trial.loaders_unseen": Words(
        "no DataLoader was seen to give the batches that it trains on", "没有看到哪个 DataLoader 给出训练所用的批次"
    ),
    "trial.none": Words("no trial was made", "没有做过试验"),
    "trial.too_few_steps": Words(
        "{steps} steps after warm-up are too few, {needed} are needed",
        "预热之后只有 {steps} 步，太少，至少需要 {needed} 步",
    ),
    # What became of a remedy.
    "decision.failed": Words(
        "{failed} of {trials} trials failed: {ending}", "{trials} 次试验中有 {failed} 次失败：{ending}"
    ),
    "decision.slower": Words("slower: {gain}", "变慢：{gain}"),
    "decision.uncalibrated": Words(
        "{gain}, but too little was run again to know what that is worth", "{gain}，但重复运行太少，无法判断其价值"
    ),
    "decision.too_small": Words("gains no more than {bar}: {gain}", "提升不超过 {bar}：{gain}"),
    "decision.undecided": Words("not surely over {bar}: {gain}", "不能确定超过 {bar}：{gain}"),
    "decision.baseline_unmeasured": Words(
        "the script as it is could not be measured: {why}", "无法测量原样的脚本：{why}"
    ),
    "decision.not_applied": Words("{state}: {why}", "{state}：{why}"),
    "tried.in_turns": Words("{why}, in turns within one process", "{why}，在同一进程内轮流"),
    "tried.together": Words("{why}, together with {remedies}", "{why}，与 {remedies} 一起"),
    "tried.outdone": Words("{value} is better still", "{value} 更好"),
    "tried.no_time": Words("there was no time left for it", "没有时间再试"),
    "tried.finer_rounding": Words(
        "it gains hardly more than a finer rounding does", "与更精细的舍入相比几乎没有更多提升"
    ),
    "tried.changes_numbers": Words("it is to change nothing, but {sentence}", "它本不该改变任何数值，但 {sentence}"),
    "tried.trial_ended": Words("the trial ended: {ending}", "试验提前结束：{ending}"),
    "tried.trial_ended_because": Words("the trial ended: {ending} ({why})", "试验提前结束：{ending}（{why}）"),
    "tried.not_in_force": Words("it did not come into force", "没有生效"),
    "tried.too_seldom": Words(
        "what it is about comes too seldom to be seen in trials; --budget would have to be {needed_s:.0f}s",
        "它针对的事在试验中出现得太少，看不到；--budget 须为 {needed_s:.0f}s",
    ),
    "tried.begins_late": Words(
        "it begins with the second epoch, after {late_s:.0f} s; --budget would have to be {needed_s:.0f}s",
        "它从第二个 epoch（{late_s:.0f} s 之后）才开始；--budget 须为 {needed_s:.0f}s",
    ),
    "tried.withdrawn": Words(
        "in the proof at the end the whole profile did not surely gain over 1%",
        "最后验证时，整个配置不能确定提升超过 1%",
    ),
    "experiment.nothing_came_again": Words(
        "the trial was over before anything came again; a longer --budget lets it see more",
        "试验在同样的内容再次出现之前就结束了；更长的 --budget 能看到更多",
    ),
    "experiment.no_evaluation_seen": Words("no evaluation was seen that could be left out", "没有看到可以省去的评估"),
    "experiment.function_not_seen": Words(
        "the function was not seen in the process that trains", "在训练进程里没有看到这个函数"
    ),
    # Why a remedy was not tried.
    "plan.not_allowed": Words(
        "it is {safety}: allow it with --allow {safety}", "属于 {safety} 类：用 --allow {safety} 允许"
    ),
    "plan.not_only": Words("not among --only", "不在 --only 之中"),
    "plan.without": Words("left out by --without", "被 --without 排除"),
    "plan.rival": Words("{remedy} is kept, and only one of them can hold", "已保留 {remedy}，两者只能用一个"),
    # Why the search ended.
    "search.nothing_left": Words("nothing was left to try", "没有剩下可试的措施"),
    "search.no_time": Words("the time was spent", "时间已用完"),
    "search.at_ceiling": Words("less than 5% is left to the ceiling", "距上限已不足 5%"),
    "search.interrupted": Words("it was interrupted", "被中断"),
    "search.verified": Words("the profile was measured", "配置已测量"),
    # Bits.
    "identity.no_loss": Words("no loss of the script as it is was kept", "没有留下原脚本的损失"),
    "identity.no_loss_with_it": Words("no loss of the trial with it was kept", "没有留下使用措施的试验的损失"),
    "identity.unread": Words("no loss could be read", "没有能读到的损失"),
    "identity.same_weights": Words(
        "losses are bit-identical over {steps} steps, and the trained weights too",
        "{steps} 步的损失逐位一致，训练后的权重也一致",
    ),
    "identity.weights_not_compared": Words(
        "losses are bit-identical over {steps} steps, the weights were not compared",
        "{steps} 步的损失逐位一致，权重未比较",
    ),
    "identity.weights_differ": Words(
        "losses are bit-identical over {steps} steps, but the trained weights differ",
        "{steps} 步的损失逐位一致，但训练后的权重不同",
    ),
    "identity.loss_differs": Words(
        "the loss first differs at step {step}: {before!r} as it is, {after!r} with it",
        "损失从第 {step} 步起不同：原脚本 {before!r}，使用措施后 {after!r}",
    ),
    "identity.not_repeated": Words(
        "{sentence}; whether the script repeats itself was not tried", "{sentence}；没有试过脚本是否重复自身"
    ),
    "identity.from_step": Words("from step {step}", "从第 {step} 步起"),
    "identity.in_weights": Words("in its weights", "权重"),
    "identity.far": Words(
        "the loss at step {step} is {after!r}, and {before!r} as it is; the script differs by itself ({where} when"
        " simply run again), but only by rounding there",
        "第 {step} 步的损失是 {after!r}，原脚本是 {before!r}；脚本自身也会不同（原样再跑一次{where}），"
        "但在该步只差舍入",
    ),
    "identity.alike": Words(
        "over the first {steps} steps losses agree with the script's own as closely as these with each other ({how});"
        " it differs {where} when simply run again",
        "前 {steps} 步的损失与脚本自身各次运行一样接近（{how}）；脚本原样再跑一次{where}就不同",
    ),
    "identity.within": Words("within {apart:.0e} of the loss", "相差不超过损失的 {apart:.0e}"),
    "identity.to_the_bit": Words("to the bit", "逐位一致"),
    "identity.not_repeatable": Words(
        "the script differs {where} when simply run again, so bit-identity cannot be asked of it",
        "脚本原样再跑一次{where}就不同，因此无法要求逐位一致",
    ),
    "identity.not_repeatable_nor_with_it": Words(
        "the script differs {where} when simply run again, so bit-identity cannot be asked of it (with the remedy it"
        " differs from step {step})",
        "脚本原样再跑一次{where}就不同，因此无法要求逐位一致（使用措施后从第 {step} 步起不同）",
    ),
    "identity.script_not_repeatable": Words(
        "the script as it is differs when simply run again, so bit-identity cannot be asked of it",
        "脚本原样再跑一次结果就不同，因此无法要求逐位一致",
    ),
    "identity.other_random_numbers": Words(
        "the samples draw random numbers, and with other workers they draw others, so bit-identity cannot be asked",
        "样本会抽取随机数，worker 不同抽到的也不同，因此无法要求逐位一致",
    ),
    "identity.no_time": Words("there was no time to try the lossless part by itself", "没有时间单独试无损的部分"),
    # Losses.
    "envelope.no_loss": Words("no loss was kept", "没有留下损失"),
    "envelope.not_run_twice": Words(
        "the script was not run twice over enough steps, so what it varies by itself is not known",
        "脚本没有在足够多的步数上运行两次，因此不知道它自身的波动",
    ),
    "envelope.too_few_steps": Words(
        "{steps} steps with a loss in every trial are too few, {needed} are needed",
        "每次试验都有损失的只有 {steps} 步，太少，至少需要 {needed} 步",
    ),
    "envelope.script_not_finite": Words(
        "the script has losses that are not finite by itself", "脚本自身就有非有限的损失"
    ),
    "envelope.not_finite": Words("the loss is not finite at step {step}", "第 {step} 步的损失不是有限值"),
    "envelope.zero": Words("the loss is zero", "损失为零"),
    "envelope.same": Words("the loss is the same", "损失完全相同"),
    "envelope.needs_perturbed": Words(
        "the script repeats itself to the bit, so only a trial with perturbed weights tells what rounding does to it",
        "脚本逐位重复自身，要做一次扰动试验才能知道舍入的影响",
    ),
    "envelope.outside": Words(
        "the loss is {percent:+.1f}% off from step {first} to {last}, where up to {limit:.1f}% is what rounding and the"
        " script itself make of it",
        "第 {first} 到 {last} 步的损失偏离 {percent:+.1f}%，而舍入和脚本自身的波动最多为 {limit:.1f}%",
    ),
    "envelope.varies_too_much": Words(
        "the script varies too much: a drift of less than {least:.1f}% could not have been seen",
        "脚本自身波动太大：小于 {least:.1f}% 的偏移无法察觉",
    ),
    "envelope.inside": Words(
        "the loss stays within what the script varies by over {steps} steps; a drift of less than {least:.1f}% could"
        " not have been seen",
        "{steps} 步内损失保持在脚本自身的波动范围内；小于 {least:.1f}% 的偏移无法察觉",
    ),
    "envelope.beside_perturbed": Words(
        "{sentence}, beside trials whose weights were moved once by as much as it rounds",
        "{sentence}，对照为权重按其舍入幅度扰动一次的试验",
    ),
    # The user's metric.
    "metric.none": Words("no trial of the script as it is has the metric", "原脚本的试验都没有该指标"),
    "metric.none_with_it": Words("no trial of the script with it has the metric", "使用措施的试验都没有该指标"),
    "metric.baseline_not_finite": Words("the metric of the script as it is is {before}", "原脚本的指标是 {before}"),
    "metric.not_finite": Words(
        "the metric is {after}, and {before:.6g} as it is", "指标是 {after}，原脚本是 {before:.6g}"
    ),
    "metric.run_once": Words(
        "{before:.6g} as it is, {after:.6g} with it; what it varies by takes a second run to know",
        "原脚本 {before:.6g}，使用措施后 {after:.6g}；要再跑一次才能知道它的波动",
    ),
    "metric.always": Words("always {before:.6g}", "始终为 {before:.6g}"),
    "metric.no_spread": Words(
        "{before:.6g} as it is, {after:.6g} with it; the script always gives the same, so there is nothing to judge a"
        " difference by",
        "原脚本 {before:.6g}，使用措施后 {after:.6g}；脚本总是给出同样的值，因此无从判断差别",
    ),
    "metric.worse": Words(
        "{before:.6g} as it is, {after:.6g} with it: worse by {loss:.3g}, where the script itself varies by"
        " {limit:.3g}",
        "原脚本 {before:.6g}，使用措施后 {after:.6g}：变差 {loss:.3g}，而脚本自身的波动为 {limit:.3g}",
    ),
    "metric.varies_too_much": Words(
        "{before:.6g} as it is, {after:.6g} with it; the script varies too much: a loss of less than {limit:.3g} could"
        " not have been seen",
        "原脚本 {before:.6g}，使用措施后 {after:.6g}；脚本自身波动太大：小于 {limit:.3g} 的变差无法察觉",
    ),
    "metric.inside": Words(
        "{before:.6g} as it is, {after:.6g} with it; a loss of less than {limit:.3g} could not have been seen",
        "原脚本 {before:.6g}，使用措施后 {after:.6g}；小于 {limit:.3g} 的变差无法察觉",
    ),
    # The ceiling.
    "ceiling.none": Words("no ceiling was measured", "没有测到上限"),
    "ceiling.device": Words("the device", "仅设备"),
    "ceiling.loader": Words("the loader", "仅加载器"),
    "ceiling.samples": Words("samples/s", "样本/秒"),
    "ceiling.steps": Words("steps/s", "步/秒"),
    "ceiling.not_found": Words(
        "not found: {alone} alone did {per_s:.4g} {unit} in its trial, the training more",
        "没有找到：{alone}在试验中为 {per_s:.4g} {unit}，而训练更快",
    ),
    "ceiling.reached": Words(
        "{percent:.0f}% of the {per_s:.4g} {unit} that {alone} alone can do",
        "达到{alone}所能达到的 {per_s:.4g} {unit}的 {percent:.0f}%",
    ),
    "ceiling.reached_by_kernels": Words(
        "{percent:.0f}% of the {per_s:.4g} {unit} that {alone} alone can do with the kernels as they are",
        "达到{alone}以现在的 kernel 所能达到的 {per_s:.4g} {unit}的 {percent:.0f}%",
    ),
    "ceiling.reached_by_kernels_of_one": Words(
        "{percent:.0f}% of the {per_s:.4g} {unit} that {alone} alone can do with the kernels as they are; {other} alone"
        " was not measured",
        "达到{alone}以现在的 kernel 所能达到的 {per_s:.4g} {unit}的 {percent:.0f}%；{other}的上限未测量",
    ),
    "ceiling.reached_of_one": Words(
        "{percent:.0f}% of the {per_s:.4g} {unit} that {alone} alone can do; {other} alone was not measured",
        "达到{alone}所能达到的 {per_s:.4g} {unit}的 {percent:.0f}%；{other}的上限未测量",
    ),
    # Notices of a fix.
    "fix.not_allowed_yet": Words(
        "not tried without --allow {safety}: {remedies}; the best of them is predicted to gain ×{gain:.2f}",
        "未加 --allow {safety}，没有尝试：{remedies}；其中最好的预测为 ×{gain:.2f}",
    ),
    "fix.pauses_uncounted": Words(
        "evaluations and checkpoints are not counted: trials are too short to see their share of a training",
        "不计评估和检查点：试验太短，看不出它们在训练中的占比",
    ),
    "fix.pauses_unseen": Words(
        "evaluations and checkpoints come so seldom under the profile that no trial saw one: After is without them",
        "在此配置下评估和检查点很少出现，没有一次试验看到：“之后”不含它们",
    ),
    "fix.foretold": Words(
        "{near} of {remedies} gains came within 20% of what was predicted; measured is {ratio:.2f} times predicted "
        "in the median",
        "{remedies} 个提升中有 {near} 个与预测相差不到 20%；实测是预测的 {ratio:.2f} 倍（中位数）",
    ),
    "fix.pauses_in_after_alone": Words(
        "evaluations and checkpoints are counted in After alone: Before is too slow to see enough of them",
        "评估和检查点只计入“之后”：“之前”太慢，试验中看不到足够多次",
    ),
    "fix.profile_failed": Words(
        "a trial of all that is kept, and of more in turns with it, ended so: {ending}. A longer training may, too",
        "一次包含全部保留措施（并轮换试验其他措施）的试验这样结束：{ending}。更长的训练也可能如此",
    ),
    "fix.in_a_trial": Words("in a trial under the profile {what}", "在此配置的一次试验中，{what}"),
    "fix.dataset_keeps": Words(
        "the dataset keeps what it has loaded ({code}): where that is used again the script becomes faster by itself,"
        " and a long training gains less than these trials",
        "数据集会保留读过的内容（{code}）：若会再次用到，脚本自己就会变快，长时间训练的收益小于这些试验",
    ),
    "fix.patch": Words(
        "the source changes that go with it are in {patch}; flatout fix --apply makes them",
        "相应的源码修改在 {patch} 里；flatout fix --apply 会写入",
    ),
    "fix.edited": Words("the source was changed as in {patch}", "源码已按 {patch} 修改"),
    "fix.no_source_change": Words(
        "none of this can be written into the source safely; the profile does it from outside",
        "这些都不能安全地写进源码；由措施配置从外部实现",
    ),
    "fix.no_patch": Words("no patch was written: {error}", "没有写补丁：{error}"),
    "fix.uncontained_program": Words(
        "started {program}, whose writes are not contained", "启动了 {program}，它写的文件不受隔离"
    ),
    "fix.wrote_file": Words(
        "what the script writes went to a scratch folder in the trials: {first}",
        "脚本写的文件在试验中进了临时目录：{first}",
    ),
    "fix.wrote_files": Words(
        "{count} files that the script writes went to a scratch folder in the trials, as {first}",
        "脚本写的 {count} 个文件在试验中进了临时目录，如 {first}",
    ),
    "verify.slower": Words("it does not gain over 1% here", "在这里没有提升超过 1%"),
    "verify.differs": Words("its lossless part changes the training: {sentence}", "它的无损部分改变了训练：{sentence}"),
    "verify.unmeasured": Words("it could not be measured", "无法测量"),
    # flatout tune.
    "tune.not_tried": Words("not tried: {why}", "未试：{why}"),
    "tune.out_of_memory_at": Words("not tried: {size:g} was out of memory already", "未试：{size:g} 时内存已不足"),
    "tune.would_not_fit": Words(
        "not tried: would need about {needed_gib:.1f} of {limit_gib:.1f} GiB",
        "未试：约需 {needed_gib:.1f} GiB，而只有 {limit_gib:.1f} GiB",
    ),
    "tune.undone": Words(
        "{remedy} was undone after {step} steps, because {why}", "{remedy} 在 {step} 步后被撤销，因为{why}"
    ),
    "tune.not_applied": Words("{remedy} was not applied, because {why}", "{remedy} 没有应用，因为{why}"),
    "tune.left_alone": Words("{remedy} left the loader alone: {why}", "{remedy} 没有改动加载器：{why}"),
    "tune.limit_unmeasured": Words("{limit}: {figure} was not measured", "{limit}：没有测量 {figure}"),
    "tune.breaks_limit": Words("breaks {limit}", "违反 {limit}"),
    "tune.none_usable": Words("no setting that was tried can be used", "试过的设置都不能用"),
    "tune.none_faster": Words(
        "nothing that was tried is surely faster than the script as it is", "试过的设置没有一个确定比原脚本快"
    ),
    "tune.none_within": Words("no setting that was tried keeps within it", "试过的设置都超出了它的限度"),
    "tune.memory_unmeasured": Words("memory was not measured", "没有测量内存"),
    "tune.chosen": Words("{why}; {quality}", "{why}；{quality}"),
    "tune.fastest": Words("the fastest", "最快"),
    "tune.best_metric": Words("the best metric", "指标最好"),
    "tune.least_memory": Words("the least memory", "内存最少"),
    "tune.as_it_is": Words("the script as it is", "原脚本"),
    "tune.quality_lower": Words("quality lower by {amount} after {steps} steps", "{steps} 步后质量低 {amount}"),
    "tune.quality_higher": Words("quality higher by {amount} after {steps} steps", "{steps} 步后质量高 {amount}"),
    "tune.decibel": Words("{loss:.2f} dB", "{loss:.2f} dB"),
    "tune.share": Words("{loss:.2%}", "{loss:.2%}"),
    "tune.lossless_only": Words("lossless knobs only", "只动了无损的旋钮"),
    "tune.no_metric_given": Words("quality not verified: no metric was given", "质量未验证：没有给出指标"),
    "tune.no_metric_printed": Words("quality not verified: no metric was printed", "质量未验证：没有打印指标"),
    "tune.interrupted": Words("interrupted: the same command goes on from here", "已中断：用同样的命令可从这里继续"),
    "tune.budget_spent": Words(
        "the budget of {budget} is spent: the same command goes on from here",
        "{budget} 的预算已用完：用同样的命令可从这里继续",
    ),
    "tune.steps_decide": Words(
        "Samples could not be counted, so steps/s decide; where a knob changes the batch they mislead.",
        "无法计数样本，因此按步/秒比较；若旋钮改变批大小则会误导。",
    ),
    "tune.drift": Words(
        "The machine changed its pace by {share:.0%} between the first and the last trial of the script as it is.",
        "从原脚本的第一次试验到最后一次，机器的速度变化了 {share:.0%}。",
    ),
    "tune.short": Words(
        "Only short trials were made before the end: figures are rough.", "结束之前只做了短试验：数字较粗略。"
    ),
    "tune.metric_not_found": Words(
        "The metric {pattern!r} was found in no trial's output, so quality is not verified.",
        "任何试验的输出里都没有找到指标 {pattern!r}，因此质量未验证。",
    ),
    "tune.no_quality": Words(
        "Without a measured metric the presets turn no knob that can change what is learnt.",
        "没有测到指标，预设不会动可能改变学习结果的旋钮。",
    ),
    "tune.baseline_out_of_memory": Words(
        "The script as it is went out of memory, so nothing is compared with it.",
        "原脚本内存不足，因此没有与它比较。",
    ),
    "tune.by_curve": Words("the top of the curve over {knob}", "{knob} 曲线的最高点"),
    "tune.by_doubling": Words("doubled while {knob} pays and fits", "只要 {knob} 划算且放得下就加倍"),
    "tune.all_settings": Words("all {count} settings", "全部 {count} 个设置"),
    "tune.by_model": Words(
        "{most} of {count:,} settings, chosen by a model of the others (Optuna)",
        "{count:,} 个设置中的 {most} 个，由其余设置的模型选择（Optuna）",
    ),
    "tune.at_random": Words(
        "{most} of {count:,} settings, at random and around the best (pip install 'flatout[tune]' chooses better)",
        "{count:,} 个设置中的 {most} 个，随机并围绕最好的（pip install 'flatout[tune]' 选得更好）",
    ),
}
