// The curves of a run: kept as columns, drawn by uPlot, zoomed and pointed at together.

import { at, figure, make, percent } from "/static/common.js";
import { say } from "/static/words.js";

const PHASES = ["data", "h2d", "forward", "backward", "optimizer", "sync", "eval", "checkpoint", "logging", "gc", "other"];
const HEIGHT = 170;
// Seconds between two marks of the time axis, up to a month.
const CLOCK_STEPS = [1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14400, 28800, 86400, 172800, 604800];

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const PLOTS = [
  { id: "speed", curves: [["samples_per_s", "s_samples", "--accent"]], else: [["steps_per_s", "s_steps", "--accent"]], show: figure },
  { id: "phases", stacked: true, show: percent, top: 1 },
  {
    id: "gpu", show: percent, top: 1,
    curves: [["util", "s_util", "--good"], ["starved", "s_starved", "--bad"], ["power", "s_power", "--phase-h2d"],
      ["sm", "s_sm", "--accent"], ["tensor", "s_tensor", "--phase-optimizer"], ["gpu_memory", "s_gpu_memory", "--muted"]],
  },
  { id: "queue", curves: [["queue", "s_queue", "--phase-data"]], show: figure },
  { id: "ram", curves: [["ram", "s_ram", "--accent"], ["ram_limit", "s_ram_limit", "--bad"]], show: figure },
  { id: "cpu", curves: [["cpu", "s_cpu", "--phase-forward"]], show: figure },
  { id: "disk", curves: [["disk_read", "s_disk", "--phase-h2d"]], show: figure },
];

const isMeasured = (column) => column !== undefined && column.some((value) => value !== null);

function clock(seconds) {
  const whole = Math.round(seconds);
  const pad = (n) => String(n).padStart(2, "0");
  const minutes = Math.floor(whole / 60);
  return minutes < 60 ? `${minutes}:${pad(whole % 60)}` : `${Math.floor(minutes / 60)}:${pad(minutes % 60)}:${pad(whole % 60)}`;
}

export class Charts {
  constructor() {
    this.columns = {};
    this.drawn = new Map();
    this.zoomed = false;
    new ResizeObserver(() => this.fit()).observe(at("charts"));
    at("zoom-reset").addEventListener("click", () => this.showAll());
  }

  // All of it, or what has changed since: everything from bin `from` on is replaced.
  take(points) {
    for (const [name, values] of Object.entries(points.columns)) {
      this.columns[name] = (this.columns[name] ?? []).slice(0, points.from).concat(values);
    }
    this.draw();
  }

  measured(name) { return isMeasured(this.columns[name]); }

  showAll() {
    this.zoomed = false;
    this.draw();
  }

  // Language or colours have changed.
  drawAnew() {
    for (const { plot, box } of this.drawn.values()) { plot.destroy(); box.remove(); }
    this.drawn.clear();
    this.draw();
  }

  draw() {
    at("zoom-reset").hidden = !this.zoomed;
    for (const plan of PLOTS) {
      const curves = this.curvesOf(plan);
      const known = this.drawn.get(plan.id);
      const names = curves.map(([name]) => name).join();
      if (known && known.names !== names) { known.plot.destroy(); known.box.remove(); this.drawn.delete(plan.id); }
      if (!curves.length) continue;
      const data = this.dataOf(plan, curves);
      if (this.drawn.has(plan.id)) this.drawn.get(plan.id).plot.setData(data, !this.zoomed);
      else this.drawn.set(plan.id, { names, ...this.create(plan, curves, data) });
    }
    // The first of them had all the room to itself when it was made.
    this.fit();
  }

  curvesOf(plan) {
    if (plan.stacked) {
      // From the top down: each area is drawn over the one that holds it.
      return PHASES.filter((name) => (this.columns[`phase_${name}`] ?? []).some((value) => value > 0.005))
        .map((name) => [`phase_${name}`, name, `--phase-${name}`]).reverse();
    }
    const curves = plan.curves.filter(([name]) => this.measured(name));
    return curves.length || !plan.else ? curves : plan.else.filter(([name]) => this.measured(name));
  }

  dataOf(plan, curves) {
    const columns = curves.map(([name]) => this.columns[name]);
    if (!plan.stacked) return [this.columns.t, ...columns];
    const below = columns.slice();
    for (let i = below.length - 2; i >= 0; i--) {
      below[i] = below[i].map((value, k) => (value === null || below[i + 1][k] === null ? null : value + below[i + 1][k]));
    }
    return [this.columns.t, ...below];
  }

  create(plan, curves, data) {
    const box = make("figure", { css: "chart" }, make("h3", { text: say(`c_${plan.id}`) }));
    box.id = `chart-${plan.id}`;
    const after = PLOTS.slice(PLOTS.indexOf(plan) + 1).map((one) => this.drawn.get(one.id)?.box).find(Boolean);
    at("charts").insertBefore(box, after ?? null);
    // Where nobody points at a moment, the newest one counts.
    const value = (name, show) => (_, __, ___, k) => {
      const real = k == null ? this.columns[name].findLast((one) => one !== null) : this.columns[name][k];
      return real == null ? "–" : show(real);
    };
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--grid"), width: 1 }, ticks: { show: false }, font: "11px system-ui, sans-serif" };
    const options = {
      width: Math.max(200, box.clientWidth),
      height: HEIGHT,
      scales: { x: { time: false }, y: { range: (_, low, high) => [0, plan.top ?? Math.max(1e-9, high * 1.08)] } },
      axes: [
        { ...axis, values: (_, ticks) => ticks.map(clock), incrs: CLOCK_STEPS, size: 26 },
        { ...axis, values: (_, ticks) => ticks.map((tick) => (plan.top ? percent(tick) : tick.toLocaleString("en-US"))), size: 54 },
      ],
      series: [
        { label: say("s_time"), value: value("t", clock) },
        ...curves.map(([name, label, hue]) => ({
          label: plan.stacked ? label : say(label),
          stroke: colour(hue),
          width: plan.stacked ? 0 : 1.5,
          fill: plan.stacked ? colour(hue) : undefined,
          // A line needs two of them.
          points: { show: (plot, k) => !plan.stacked && plot.data[k].filter((one) => one !== null).length === 1 },
          spanGaps: true,
          value: value(name, plan.show),
        })),
      ],
      cursor: { sync: { key: "flatout" }, drag: { x: true, y: false } },
      hooks: {
        setSelect: [(plot) => { if (plot.select.width > 0) { this.zoomed = true; at("zoom-reset").hidden = false; } }],
        setScale: [(plot, name) => { if (name === "x") [box.dataset.from, box.dataset.to] = [plot.scales.x.min, plot.scales.x.max]; }],
      },
    };
    const plot = new uPlot(options, data, box);
    plot.over.addEventListener("dblclick", () => this.showAll());
    return { plot, box };
  }

  fit() {
    for (const { plot, box } of this.drawn.values()) {
      if (box.clientWidth > 0 && box.clientWidth !== plot.width) plot.setSize({ width: box.clientWidth, height: HEIGHT });
    }
  }
}
