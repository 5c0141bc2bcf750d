/* Charts over time that zoom together. Used by report.js; needs uPlot. */
"use strict";

const flatoutCharts = (() => {
  const HEIGHT = 118;
  const AXIS = 58;
  const POWERS = Array.from({ length: 50 }, (_, n) => 2 ** n);
  /* What belongs to a step lasts until the next one begins. */
  const STEPPED = new Set(["phases", "step", "rate", "queue", "starved"]);
  const COLOURS = ["--accent", "--phase-h2d", "--phase-forward", "--phase-sync", "--phase-optimizer", "--phase-data"];
  const FIXED = { main: "--phase-backward", worker: "--phase-data", other: "--phase-other", util: "--accent",
    power: "--phase-h2d", sm: "--phase-forward", tensor: "--phase-sync", starved: "--phase-data",
    disk_read: "--accent", disk_write: "--phase-h2d", iowait: "--phase-sync", everybody: "--phase-other",
    container: "--phase-other", machine: "--phase-other" };

  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const figure = (value) => {
    const size = Math.abs(value);
    if (size >= 1000) return Math.round(value).toLocaleString("en-US");
    return String(+value.toPrecision(size >= 100 ? 3 : 2));
  };
  const bytes = (value) => {
    const units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let at = 0;
    while (Math.abs(value) >= 1024 && at < units.length - 1) { value /= 1024; at += 1; }
    return `${figure(value)} ${units[at]}`;
  };
  const UNITS = {
    share: (v) => (v > 0 && v < 0.005 ? "<1%" : `${Math.round(v * 100)}%`),
    ms: (v) => (v >= 10000 ? `${figure(v / 1000)} s` : `${figure(v)} ms`),
    rate: (v) => figure(v),
    count: (v) => figure(v),
    cores: (v) => figure(v),
    bytes,
    bytes_per_s: (v) => `${bytes(v)}/s`,
  };
  const clock = (seconds, step) => {
    const h = Math.floor(seconds / 3600), m = Math.floor(seconds / 60) % 60, s = seconds - 3600 * h - 60 * m;
    const two = (n) => String(n).padStart(2, "0");
    if (h) return `${h}:${two(m)}:${two(Math.floor(s))}`;
    if (m || step >= 1) return `${m}:${two(Math.floor(s))}`;
    return `${seconds.toFixed(step < 0.1 ? 2 : 1)} s`;
  };

  const stacked = (series) => {
    const sums = [];
    series.forEach((one, at) => {
      sums.push(one.values.map((value, i) => (value === null ? 0 : value) + (at ? sums[at - 1][i] : 0)));
    });
    return sums;
  };

  /* Evaluations and checkpoints stand behind the curves. */
  const marking = (marks) => ({ hooks: { drawClear: (u) => {
    const { ctx, bbox } = u;
    ctx.save();
    ctx.beginPath();
    ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height);
    ctx.clip();
    for (const [phase, start, end] of marks) {
      if (end < u.scales.x.min || start > u.scales.x.max) continue;
      const left = u.valToPos(start, "x", true);
      ctx.fillStyle = colour(`--mark-${phase}`);
      ctx.globalAlpha = 0.28;
      ctx.fillRect(left, bbox.top, Math.max(devicePixelRatio, u.valToPos(end, "x", true) - left), bbox.height);
    }
    ctx.restore();
  } } });

  const axes = (unit) => {
    const plain = { stroke: colour("--muted"), font: "11px system-ui, sans-serif", ticks: { show: false },
      grid: { stroke: colour("--grid"), width: 1 } };
    return [
      { ...plain, size: 22, gap: 4, values: (u, at, n, space, step) => at.map((v) => clock(v, step)) },
      { ...plain, size: AXIS, gap: 4, space: 26, incrs: unit.startsWith("bytes") ? POWERS : undefined, values: (u, at) => at.map((v) => UNITS[unit](v)) },
    ];
  };

  const range = (chart) => (u, low, high) => (chart.unit === "share" ? [0, 1] : [0, Math.max(high || 0, 1e-9) * 1.06]);

  /* A limit far above the curve would press it flat: then it is named in the heading only. */
  const drawsLimit = (chart) => {
    const top = chart.series.reduce((most, one) => one.values.reduce((m, v) => Math.max(m, v || 0), most), 0);
    return Boolean(chart.limit) && chart.limit < 3 * top;
  };

  /* What a chart shows can be read from the page. */
  const shownRange = (u, scale) => {
    const box = u.root.parentNode;
    if (scale !== "x" || !box) return;
    box.dataset.from = u.scales.x.min;
    box.dataset.to = u.scales.x.max;
  };

  class Charts {
    constructor(place, data, words) {
      this.place = place;
      this.data = data;
      this.words = words;
      this.all = [];
      this.range = [0, data.end_s];
      this.zooming = false;
      this.fixed = null;
    }

    draw(width = null) {
      this.fixed = width;
      this.all.forEach((chart) => chart.destroy());
      this.place.replaceChildren();
      this.all = this.data.charts.map((chart) => this.one(chart));
    }

    resize() {
      this.all.forEach((chart) => chart.setSize({ width: this.width(chart.root.parentNode), height: HEIGHT }));
    }

    width(box) {
      return this.fixed || Math.max(240, box.clientWidth);
    }

    zoom(low, high) {
      const end = this.data.end_s;
      const least = Math.max(end * 1e-4, 1e-3);
      low = Math.max(0, low);
      high = Math.min(end, high);
      if (high - low < least) return;
      this.range = [low, high];
      this.all.forEach((chart) => chart.setScale("x", { min: low, max: high }));
    }

    by(factor) {
      const [low, high] = this.range;
      const middle = (low + high) / 2, half = ((high - low) / 2) * factor;
      this.zoom(middle - half, middle + half);
    }

    reset() {
      this.zoom(0, this.data.end_s);
    }

    one(chart) {
      const words = this.words();
      const box = document.createElement("div");
      box.className = "chart";
      box.dataset.name = chart.name;
      const title = document.createElement("h3");
      title.textContent = words[chart.name];
      if (chart.limit) {
        const limit = document.createElement("small");
        limit.textContent = ` · ${words.limit} ${UNITS[chart.unit](chart.limit)}`;
        title.append(limit);
      }
      box.append(title);
      this.place.append(box);
      return new uPlot(this.options(chart, words, this.width(box)), this.values(chart), box);
    }

    values(chart) {
      if (!chart.stacked) {
        const limit = drawsLimit(chart) ? [chart.t_s.map(() => chart.limit)] : [];
        return [chart.t_s, ...chart.series.map((one) => one.values), ...limit];
      }
      return [chart.t_s, ...stacked(chart.series)];
    }

    options(chart, words, width) {
      return {
        width,
        height: HEIGHT,
        legend: { live: true },
        cursor: {
          y: false,
          drag: { x: true, y: false, setScale: false },
          sync: { key: "flatout" },
          bind: { dblclick: () => () => { this.reset(); return null; } },
          points: { size: 5 },
        },
        scales: { x: { time: false, min: this.range[0], max: this.range[1], auto: false }, y: { range: range(chart) } },
        axes: axes(chart.unit),
        series: [{ label: words.time, value: (u, v) => (v === null ? "" : clock(v, 0.1)) }, ...this.series(chart, words)],
        bands: chart.stacked ? chart.series.slice(1).map((_, n) => ({ series: [n + 2, n + 1] })) : [],
        plugins: [marking(this.data.marks)],
        hooks: { setSelect: [(u) => this.selected(u)], setScale: [shownRange], ready: [(u) => shownRange(u, "x")] },
      };
    }

    series(chart, words) {
      const unit = UNITS[chart.unit];
      const label = (name) => (chart.name === "phases" ? name : words[`series_${name}`] || name);
      const stroke = (name, at) => colour(chart.name === "phases" ? `--phase-${name}` : FIXED[name] || COLOURS[at % COLOURS.length]);
      const paths = STEPPED.has(chart.name) ? uPlot.paths.stepped({ align: 1 }) : undefined;
      if (chart.stacked) {
        return chart.series.map((one, at) => ({
          label: label(one.name), stroke: stroke(one.name, at), fill: stroke(one.name, at), width: 0, paths,
          points: { show: false },
          value: (u, v, n, i) => (i === null || i === undefined || one.values[i] === null ? "" : unit(one.values[i])),
        }));
      }
      const drawn = chart.series.map((one, at) => ({
        label: label(one.name), stroke: stroke(one.name, at), width: 1.4, spanGaps: true, paths,
        points: { show: chart.t_s.length < 40, size: 4 }, value: (u, v) => (v === null || v === undefined ? "" : unit(v)),
        fill: chart.series.length === 1 ? `${stroke(one.name, at)}22` : undefined,
      }));
      if (drawsLimit(chart)) {
        drawn.push({ label: words.limit, stroke: colour("--bad"), width: 1, dash: [4, 4], points: { show: false },
          value: () => unit(chart.limit) });
      }
      return drawn;
    }

    /* The others hear of the same selection: the first one counts. */
    selected(u) {
      if (this.zooming || u.select.width < 4) return;
      this.zooming = true;
      const low = u.posToVal(u.select.left, "x"), high = u.posToVal(u.select.left + u.select.width, "x");
      setTimeout(() => {
        this.all.forEach((chart) => chart.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false));
        this.zoom(low, high);
        this.zooming = false;
      }, 0);
    }
  }

  return Charts;
})();
