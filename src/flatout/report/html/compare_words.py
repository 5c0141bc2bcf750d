"""The fixed strings of a comparison's page, in English and Chinese."""

from __future__ import annotations

from markupsafe import Markup, escape

from flatout.records.comparison import Comparison, Judgement
from flatout.report.compare import format_gain
from flatout.report.html.page import in_both

WORDS: dict[str, tuple[str, str]] = {
    "faster": ("FASTER", "更快"),
    "slower": ("SLOWER", "更慢"),
    "no_sure_difference": ("NO SURE DIFFERENCE", "无确定差异"),
    "not_measured": ("NOT MEASURED", "未测量"),
    "gate_passed": (
        "Gate passed: none is surely below {least} of the first.",
        "门限通过：没有任何一个确定低于第一个的 {least}。",
    ),
    "gate_failed": (
        "Gate failed: surely below {least} of the first: {names}",
        "门限未通过：确定低于第一个的 {least}：{names}",
    ),
    "speed_title": ("Speed", "速度"),
    "speed_note": (
        "Points are what was measured, lines the 95% interval of the ratio to the first run, on a logarithmic axis. "
        "Filled: all the time there was. Hollow: without evaluations, checkpoints and other rare long steps.",
        "点为测得值，线为与第一个运行之比的 95% 区间（对数坐标）。"
        "实心：全部时间；空心：不含评估、检查点及其他少见的长步。",
    ),
    "run": ("run", "运行"),
    "samples_per_s": ("samples/s", "样本/秒"),
    "steps_per_s": ("it/s", "步/秒"),
    "step": ("a step", "每步"),
    "batch": ("batch", "批大小"),
    "ratio": ("against the first", "与第一个之比"),
    "ordinary": ("ordinary steps", "普通步"),
    "device": ("device", "设备"),
    "bound": ("bound by", "受限于"),
    "step_title": ("Where a step goes", "一步的时间去向"),
    "sample_title": ("Where a sample's time goes", "一个样本的时间去向"),
    "hover": ("Point at a block, or press Tab, for its figures.", "指向色块，或用 Tab 键逐个查看数值。"),
    "phase": ("phase", "阶段"),
    "difference": ("difference", "差"),
    "same": ("same", "相同"),
    "settings_title": ("Settings that differ", "不同的设置"),
    "no_settings": ("None that is recorded.", "没有记录到不同。"),
    "group": ("of", "所属"),
    "setting": ("setting", "设置"),
    "findings_title": ("Findings", "问题"),
    "gone": ("gone", "已消失"),
    "new": ("new", "新出现"),
    "stayed": ("in both", "两者都有"),
    "no_findings": ("None in either.", "两者都没有。"),
    "notes_title": ("How far they compare", "可比程度"),
    "no_notes": ("Nothing speaks against it.", "没有不可比之处。"),
}

# The English ones are in the record.
SENTENCES: dict[Judgement, str] = {
    "faster": "{after} 比 {before} 快，{unit}之比为 {gain}",
    "slower": "{after} 比 {before} 慢，{unit}之比为 {gain}",
    "no sure difference": "{before} 与 {after} 之间没有确定的差异，{unit}之比为 {gain}",
    "not measured": "{before} 与 {after} 无法比较速度：预热之后的步数太少",
}
BOUNDS = {
    "input": "数据输入",
    "transfer": "数据传输",
    "sync": "同步等待",
    "host": "主机",
    "compute": "计算",
    "cadence": "周期任务",
    "memory": "内存",
    "balanced": "均衡",
}
_UNITS = {"sample": "样本/秒", "step": "步/秒"}


def word(name: str, **values: object) -> Markup:
    """In both languages, as the page's frame shows them; values are escaped."""
    safe = {key: escape(value) for key, value in values.items()}
    english, chinese = (Markup(text.format(**safe)) for text in WORDS[name])
    return in_both(english, chinese)


def sentence(one: Comparison) -> Markup:
    words = {"before": one.before.name, "after": one.after.name}
    if one.gain is not None:
        words |= {"gain": format_gain(one.gain), "unit": _UNITS[one.gain.unit]}
    return in_both(one.sentence, SENTENCES[one.judgement].format(**words))
