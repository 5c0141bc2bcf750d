"""What detectors of settings say of a run, in Chinese."""

from __future__ import annotations

SAID_CONFIG = {
    # CF801
    "{} is configured as {} but is {} in the loader that trains": "训练用的加载器里，{0} 配置为 {1}，实际是 {2}",
    "pass {} to the DataLoader here, or take it out of the config": "在这里把 {0} 传给 DataLoader，或从配置里删掉它",
    "pass {} to the DataLoader here, or take it out of the config{}": (
        "在这里把 {0} 传给 DataLoader，或从配置里删掉它{1}"
    ),
    "; {n} workers are too many for {n} processors": "；{1} 个核用 {0} 个 worker 太多",
    # CF802
    "{} is configured as {} but is {} in the process that trains ({})": "训练进程里，{0} 配置为 {1}，实际是 {2}（{3}）",
    "command line: {}": "命令行：{0}",
    "{}, after seeding; or take it out of the config": "设好随机种子之后：{0}；或从配置里删掉它",
    "torch.backends.cudnn.benchmark = {}; {}": "torch.backends.cudnn.benchmark = {0}; {1}",
    "torch.backends.cudnn.deterministic = {}; {}": "torch.backends.cudnn.deterministic = {0}; {1}",
    "torch.backends.cuda.matmul.allow_tf32 = {}; {}": "torch.backends.cuda.matmul.allow_tf32 = {0}; {1}",
    "torch.autocast around the forward pass": "用 torch.autocast 包住前向",
    # Both: the value of a setting, and the settings after it
    "{}, {} is configured as {} but is {}": "{0}；{1} 配置为 {2}，实际是 {3}",
}
