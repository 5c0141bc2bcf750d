"""What is read in source, in words: what a value is called where it is written, and why another place matters."""

from __future__ import annotations

from .table import Words

TABLE = {
    "source.default": Words("the default of {name}", "{name} 的默认值"),
    "source.default_in": Words("the default of {name} in {function}()", "{function}() 中 {name} 的默认值"),
    "source.parameter": Words("{name} of {function}()", "{function}() 的 {name}"),
    # What a fix does.
    "fix.add": Words("add {code}", "加上 {code}"),
    "fix.add_after_imports": Words("add {code} after the imports", "在 import 之后加上 {code}"),
    "fix.delete_call": Words("delete the call", "删掉这个调用"),
    "fix.drop": Words("leave out {code}", "去掉 {code}"),
    "fix.replace": Words("{new} instead of {old}", "用 {new} 代替 {old}"),
    # Beside a place that one has to see to understand a finding.
    "related.calls": Words("calls {function}", "调用 {function}"),
    "related.training_loop": Words("the training loop", "训练循环"),
    "related.reaches_loader": Words("reaches this DataLoader", "传给这个 DataLoader"),
    "related.reaches_switch": Words("reaches this switch", "传给这个开关"),
    "related.reaches_tokenizer": Words("reaches this tokenizer", "传给这个分词器"),
    "related.and_here": Words("and here", "还有这里"),
    "related.uses": Words("uses {name}", "使用 {name}"),
    "related.set_here": Words("set here: {setting}", "在这里设置：{setting}"),
    "related.same_number": Words("has the same number in its call", "它的调用里写着同一个数字"),
    "related.steps_after_batch": Words("steps after every batch", "每个批次之后都更新一步"),
    "related.clock_starts": Words("the clock starts here", "计时从这里开始"),
    "related.clock_starts_with_batch": Words(
        "the clock starts here, with the batch in hand", "计时从这里开始，此时批次已经取到"
    ),
    "related.repeats": Words("goes through it again", "再次遍历它"),
    "related.its_loader": Words("its DataLoader", "它的 DataLoader"),
    "related.training_loader": Words("the training's loader", "训练用的加载器"),
    "related.workers_loader": Words("the workers' DataLoader", "这些 worker 所属的 DataLoader"),
    "related.compiled": Words("compiled here", "在这里编译"),
    "related.copies": Words("copies to the device", "复制到设备"),
    "related.collated": Words("what the collate function returns", "collate 函数返回的内容"),
    "related.fills": Words("fills {name}", "填充 {name}"),
    "related.shuffles": Words("shuffles", "打乱顺序"),
}
