// Every word of the dashboard in both languages. The verdict's sentence and what is said of a problem come with the report,
// in both; what a run says with its own figures is shown as it was written.

const WORDS = {
  en: {
    other_language: "中文", theme_auto: "theme: system", theme_light: "theme: light", theme_dark: "theme: dark",
    runs: "runs", stored: "Runs, newest first", no_runs: "No runs here yet: flatout run train.py makes one.",
    run: "run", state: "state", when: "started", steps: "steps", samples_per_s: "samples/s", verdict: "verdict",
    state_running: "running", state_finished: "finished", state_broken: "ended without a verdict",
    exit_code: "exit code {code}", unreadable: "cannot be read",
    ago_s: "{n} s ago", ago_m: "{n} min ago", ago_h: "{n} h ago", ago_d: "{n} d ago",
    elapsed: "for {time}", steps_done: "{n} steps", waiting: "Waiting for the first step.",
    judging: "The verdict follows after the first steps.",
    next: "Next:", copy: "copy", copied: "copied", report: "open the full report of this run",
    now_title: "The last seconds", all_title: "The whole run",
    phases_title: "Where a step goes", findings_title: "What to fix",
    findings_so_far: "So far; judged again while the run goes on.", no_findings: "Nothing worth fixing was found.",
    no_known_cause: "No problem of the catalogue explains it so far.",
    change: "Change:", or_run: "or:", this_run: "This run: ", more: "more: flatout explain {code}",
    charts_title: "Over time", zoom_how: "Drag to zoom in, double-click for all.", zoom_reset: "show all",
    notices: "Notes", unmeasured: "Not measured: {names}.", not_measured: "not measured",
    lost: "The connection is lost; trying again.", gone: "The dashboard has ended.",
    refused: "Open the address that flatout printed: this browser has no token for it.",
    trouble: "This run cannot be shown: {why}", of: "of {limit} GiB", cores: "cores",
    bound_input: "input-bound", bound_transfer: "transfer-bound", bound_sync: "sync-bound", bound_host: "host-bound",
    bound_compute: "compute-bound", bound_cadence: "cadence-bound", bound_memory: "memory-bound",
    bound_balanced: "balanced", healthy: "healthy, {bound}",
    f_samples: "samples/s", f_steps: "steps/s", f_data: "waiting for data", f_starved: "GPU starved", f_util: "GPU busy",
    f_power: "GPU power, of its limit", f_sm: "SMs active", f_queue: "batches ready", f_cpu: "CPU", f_ram: "RAM",
    f_gpu_memory: "GPU memory", f_gpu_memory_peak: "GPU memory, peak", f_ram_peak: "RAM of the run, peak",
    c_speed: "samples a second", c_phases: "share of the step", c_gpu: "GPU", c_queue: "batches ready in the queue",
    c_ram: "RAM against its limit, GiB", c_cpu: "CPU cores busy", c_disk: "read from disks, MB/s",
    s_time: "time", s_samples: "samples/s", s_steps: "steps/s", s_util: "busy", s_power: "power", s_sm: "SMs", s_tensor: "tensor cores",
    s_starved: "starved", s_gpu_memory: "memory", s_queue: "batches", s_ram: "used", s_ram_limit: "limit", s_cpu: "cores", s_disk: "MB/s",
  },
  zh: {
    other_language: "English", theme_auto: "主题：跟随系统", theme_light: "主题：浅色", theme_dark: "主题：深色",
    runs: "运行列表", stored: "全部运行，最新在前", no_runs: "这里还没有运行：flatout run train.py 会产生一个。",
    run: "运行", state: "状态", when: "开始", steps: "步数", samples_per_s: "样本/秒", verdict: "结论",
    state_running: "运行中", state_finished: "已结束", state_broken: "已中断，没有结论",
    exit_code: "退出码 {code}", unreadable: "无法读取",
    ago_s: "{n} 秒前", ago_m: "{n} 分钟前", ago_h: "{n} 小时前", ago_d: "{n} 天前",
    elapsed: "已用 {time}", steps_done: "{n} 步", waiting: "正在等待第一步。",
    judging: "最初几步之后会给出结论。",
    next: "下一步：", copy: "复制", copied: "已复制", report: "打开本次运行的完整报告",
    now_title: "最近几秒", all_title: "整个运行",
    phases_title: "一步的时间去了哪里", findings_title: "应当修复的问题",
    findings_so_far: "目前的结果；运行期间会不断重新判断。", no_findings: "没有发现值得修复的问题。",
    no_known_cause: "目录中暂时没有能解释它的问题。",
    change: "修改：", or_run: "或者：", this_run: "本次运行：", more: "详细说明（英文）：flatout explain {code}",
    charts_title: "随时间的变化", zoom_how: "拖动放大，双击显示全部。", zoom_reset: "显示全部",
    notices: "说明", unmeasured: "未测量：{names}。", not_measured: "未测量",
    lost: "连接已断开，正在重试。", gone: "仪表板已结束。",
    refused: "请打开 flatout 打印的地址：此浏览器没有令牌。",
    trouble: "无法显示此运行：{why}", of: "/ {limit} GiB", cores: "核",
    bound_input: "输入受限", bound_transfer: "传输受限", bound_sync: "同步受限", bound_host: "主机受限",
    bound_compute: "计算受限", bound_cadence: "周期任务受限", bound_memory: "内存受限",
    bound_balanced: "均衡", healthy: "健康，{bound}",
    f_samples: "样本/秒", f_steps: "步/秒", f_data: "等待数据", f_starved: "GPU 缺数据", f_util: "GPU 利用率",
    f_power: "GPU 功耗占上限", f_sm: "SM 活跃", f_queue: "就绪批次", f_cpu: "CPU", f_ram: "内存", f_gpu_memory: "显存",
    f_gpu_memory_peak: "显存峰值", f_ram_peak: "本运行内存峰值",
    c_speed: "每秒样本数", c_phases: "占一步时间的比例", c_gpu: "GPU", c_queue: "队列中就绪的批次",
    c_ram: "内存与上限，GiB", c_cpu: "忙碌的 CPU 核数", c_disk: "磁盘读取，MB/秒",
    s_time: "时间", s_samples: "样本/秒", s_steps: "步/秒", s_util: "利用率", s_power: "功耗", s_sm: "SM", s_tensor: "张量核心",
    s_starved: "缺数据", s_gpu_memory: "显存", s_queue: "批次", s_ram: "已用", s_ram_limit: "上限", s_cpu: "核", s_disk: "MB/秒",
  },
};

const KEPT = "flatout-language";

function kept() {
  try { return localStorage.getItem(KEPT); } catch { return null; }
}

let language = kept() ?? (navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en");
if (!(language in WORDS)) language = "en";

export const currentLanguage = () => language;

export function say(name, values = {}) {
  return WORDS[language][name].replace(/\{(\w+)\}/g, (_, key) => values[key]);
}

export function switchLanguage() {
  language = language === "en" ? "zh" : "en";
  try { localStorage.setItem(KEPT, language); } catch { /* private window: it lasts as long as the page */ }
}
