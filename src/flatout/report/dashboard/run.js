// The page of one run. The server sends what is new; everything shown is drawn from what was received last.

import { at, badge, duration, figure, make, percent, prepare, withCode } from "/static/common.js";
import { Charts } from "/static/charts.js";
import { currentLanguage, say } from "/static/words.js";

const key = location.pathname.split("/")[2];
const SVG = "http://www.w3.org/2000/svg";
const received = { facts: null, now: null, report: null, trouble: "", why: "" };
let charts = null;

const isOver = () => received.facts !== null && received.facts.state !== "running";

function drawVerdict() {
  const { facts, report, now } = received;
  if (facts === null) return;
  at("name").textContent = facts.id;
  at("command").textContent = facts.argv.join(" ");
  at("state").className = `state is-${facts.state}`;
  at("state").textContent = say(`state_${facts.state}`) + (facts.exit_code ? ` · ${say("exit_code", { code: facts.exit_code })}` : "");
  at("elapsed").textContent = now ? say("elapsed", { time: duration(now.elapsed_s) }) : "";
  at("steps").textContent = now && now.steps ? say("steps_done", { n: now.steps.toLocaleString("en-US") }) : "";
  at("device").textContent = report && report.run.steps ? report.run.device.toUpperCase() : "";
  const judged = report !== null && report.run.steps > 0;
  at("verdict").className = `panel verdict ${judged ? (report.verdict.healthy ? "is-good" : "is-bad") : ""}`;
  at("badge").hidden = !judged;
  if (judged) at("badge").textContent = badge(report.verdict.bound, report.verdict.healthy);
  at("sentence").textContent = judged || (isOver() && report) ? translated().sentence ?? report.verdict.sentence : say(now && now.steps ? "judging" : "waiting");
  const machine = judged ? report.machine : null;
  at("disturbed").hidden = !machine?.sentence;
  if (machine?.sentence) {
    at("disturbed-badge").textContent = say(machine.disturbed ? "disturbed" : "limited");
    at("disturbed-sentence").textContent = translated().machine ?? machine.sentence;
  }
  at("next-line").hidden = report === null || (!judged && !isOver());
  if (report !== null) at("next").textContent = report.next;
  at("report-line").hidden = facts.state !== "finished" || !judged;
  at("report").href = `/report/${key}?lang=${currentLanguage()}`;
}

// What is not known in Chinese is shown as it was written.
const translated = () => (currentLanguage() === "zh" && received.report ? received.report.chinese : { problems: {}, findings: [], notices: [] });

const inGib = (bytes) => (bytes == null ? null : bytes / 2 ** 30);

function tiles() {
  const { now, report } = received;
  // Of a run that is over, the whole of it counts, not its last seconds.
  const all = isOver() && report !== null ? report : null;
  const gpu = all ? all.gpu ?? {} : null;
  const phases = shares();
  const cores = (value) => [value.toFixed(1), say("cores")];
  const gib = (value) => [figure(value), "GiB"];
  const ram = (value) => [figure(value), now.ram_limit == null ? "GiB" : say("of", { limit: figure(now.ram_limit) })];
  const onGpu = [
    ["starved", all ? gpu.starved_share : now.starved_share, percent],
    ["util", all ? (gpu.util_mean == null ? null : gpu.util_mean / 100) : now.util, percent],
    ["power", all ? gpu.power_share : now.power, percent],
    ["sm", all ? gpu.sm_active : now.sm, percent],
    all ? ["gpu_memory_peak", inGib(gpu.memory_peak), gib] : ["gpu_memory", now.gpu_memory, percent],
  ];
  return [
    ["samples", all ? all.throughput.samples_per_s : now.samples_per_s, figure],
    ["steps", all ? all.throughput.steps_per_s : now.steps_per_s, figure],
    ["data", phases.data, percent],
    // Without a GPU, one line below the charts says so.
    ...(onGpu.some(([, value]) => value != null) ? onGpu : []),
    ...(all ? [] : [["queue", now.queue, figure]]),
    ["cpu", all ? all.host?.cpu_cores : now.cpu, cores],
    all ? ["ram_peak", inGib(all.host?.memory_peak), gib] : ["ram", now.ram, ram],
  ];
}

function drawFigures() {
  if (received.now === null) return;
  at("figures-title").textContent = say(isOver() ? "all_title" : "now_title");
  at("figures").replaceChildren(...tiles().map(([name, value, show]) => {
    const [text, unit] = value == null ? [] : [show(value)].flat();
    const shown = value == null ? make("dd", { text: say("not_measured"), css: "unmeasured" }) : make("dd", { text });
    if (unit) shown.append(" ", make("small", { text: unit }));
    shown.id = `figure-${name}`;
    return make("div", {}, make("dt", { text: say(`f_${name}`) }), shown);
  }));
}

function shares() {
  const { now, report } = received;
  if (isOver() && report !== null && report.run.steps) {
    return Object.fromEntries(Object.entries(report.phases).map(([name, phase]) => [name, phase.share]));
  }
  return now ? now.phases : {};
}

function shape(tag, attributes, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

function drawPhases() {
  const phases = Object.entries(shares()).filter(([, share]) => share > 0);
  at("phases-panel").hidden = phases.length === 0;
  let left = 0;
  const blocks = phases.map(([name, share]) => {
    const title = shape("title", {}, `${name} ${percent(share)}`);
    const block = shape("rect", { class: `phase-${name}`, x: `${left * 100}%`, y: 0, width: `${share * 100}%`, height: 28 }, title);
    left += share;
    return block;
  });
  at("phase-bar").replaceChildren(...blocks);
  at("phase-bar").setAttribute("aria-label", phases.map(([name, share]) => `${name} ${percent(share)}`).join(", "));
  at("phase-key").replaceChildren(...phases.map(([name, share]) => {
    const dot = shape("svg", { width: 10, height: 10, "aria-hidden": "true" }, shape("rect", { class: `phase-${name}`, width: 10, height: 10, rx: 2 }));
    return make("li", {}, dot, make("span", { text: `${name} ` }), make("b", { text: percent(share) }));
  }));
}

// What the steps so far were spent on: other than phases, it is known only where the lines were sampled.
function drawParts() {
  const parts = received.report?.spent_on ?? [];
  const title = parts.length ? [make("li", { text: say("spent_on"), css: "muted" })] : [];
  at("parts").replaceChildren(...title, ...parts.map(([part, share], number) => (
    make("li", {}, make("span", { text: `${translated().parts?.[number] ?? part} ` }), make("b", { text: percent(share) })))));
}

// As in the terminal: from where the run was started.
function place({ file, line }) {
  const folder = `${received.facts?.cwd ?? ""}/`;
  return `${folder.length > 1 && file.startsWith(folder) ? file.slice(folder.length) : file}:${line}`;
}

function finding(one, number) {
  const chinese = translated().problems[one.code];
  const known = translated().findings[number];
  const head = make("h3", {}, make("span", { text: one.code, css: "code" }), ` ${chinese ? chinese.title : one.title} `);
  const gain = one.predicted_gain;
  if (gain) head.append(make("span", { text: `×${gain.low.toFixed(2)} – ×${gain.high.toFixed(2)}`, css: "gain", title: gain.method }));
  // The catalogue's words hold for every run; below them are those of this one, with its figures.
  const own = (part) => {
    const said = make("span", known?.[part] ? { text: known[part] } : { text: one[part], lang: "en" });
    return chinese ? make("p", { css: "as-written" }, say("this_run"), said) : make("p", {}, said);
  };
  const box = make("article", { css: "finding" }, head);
  if (chinese) box.append(make("p", {}, ...withCode(chinese.what_it_is)));
  box.append(own("cause"));
  if (one.location) box.append(make("p", {}, make("code", { text: place(one.location) })));
  const change = make("span", { text: `${say("change")} `, css: "muted" });
  if (chinese) box.append(make("p", {}, change, ...withCode(chinese.what_to_do)));
  if (one.change) box.append(chinese ? own("change") : make("p", {}, change, make("span", { text: one.change, lang: "en" })));
  if (one.fix) box.append(make("p", {}, make("span", { text: `${say("or_run")} `, css: "muted" }), make("code", { text: one.fix })));
  box.append(make("p", { text: say("more", { code: one.code }), css: "muted" }));
  return box;
}

function drawFindings() {
  const { report } = received;
  const judged = report !== null && report.run.steps > 0;
  at("findings-panel").hidden = !judged;
  if (!judged) return;
  at("findings-note").textContent = isOver() ? "" : say("findings_so_far");
  const found = report.findings.map(finding);
  const none = say(report.verdict.healthy ? "no_findings" : "no_known_cause");
  at("findings").replaceChildren(...(found.length ? found : [make("p", { text: none })]));
}

function drawNotes() {
  const { facts, report } = received;
  at("trouble").hidden = !received.trouble;
  if (received.trouble) at("trouble").textContent = say(received.trouble, { why: received.why });
  const notices = [...new Set([...(facts?.notices ?? []), ...(report?.notices ?? [])])];
  at("notices-panel").hidden = notices.length === 0;
  const known = new Map(translated().notices.map((chinese, number) => [report.notices[number], chinese]));
  at("notices").replaceChildren(...notices.map((text) => make("li", known.get(text) ? { text: known.get(text) } : { text, lang: "en" })));
  const missing = ["util", "starved", "queue", "ram"].filter((name) => !charts.measured(name)).map((name) => say(`f_${name}`));
  at("unmeasured").textContent = received.now && missing.length ? say("unmeasured", { names: missing.join(", ") }) : "";
}

function draw() {
  drawVerdict();
  drawFigures();
  drawPhases();
  drawParts();
  drawFindings();
  drawNotes();
  const { now, facts } = received;
  if (facts) document.title = `${!isOver() && now?.samples_per_s ? `${figure(now.samples_per_s)}/s · ` : ""}${facts.id} · flatout`;
}

function takePoints(event) {
  const points = JSON.parse(event.data);
  received.now = points.now;
  charts.take(points);
  draw();
}

const HIDDEN_MS = 5000;
let stream = null;
let ended = false;
let leaving = 0;

function follow() {
  stream = new EventSource(`/api/run/${key}/events`);
  const on = (name, take) => stream.addEventListener(name, take);
  on("facts", (event) => { received.facts = JSON.parse(event.data); draw(); });
  stream.onopen = () => { received.trouble = ""; draw(); };
  on("history", takePoints);
  on("points", takePoints);
  on("verdict", (event) => { received.report = JSON.parse(event.data); draw(); });
  on("trouble", (event) => { received.trouble = "trouble"; received.why = JSON.parse(event.data).why; draw(); });
  on("gone", () => { received.trouble = "gone"; });
  on("end", () => { ended = true; stream.close(); draw(); });
  stream.onerror = () => {
    if (ended) return;
    received.trouble = stream.readyState === EventSource.CLOSED ? "gone" : "lost";
    draw();
  };
}

at("copy").addEventListener("click", async () => {
  await navigator.clipboard.writeText(at("next").textContent);
  at("copy").textContent = say("copied");
});
// A tab that nobody sees costs the run nothing: what it has missed is told when it is looked at again.
document.addEventListener("visibilitychange", () => {
  clearTimeout(leaving);
  if (document.hidden) leaving = setTimeout(() => stream.close(), HIDDEN_MS);
  else if (!ended && stream.readyState === EventSource.CLOSED) follow();
});
charts = new Charts();
prepare(() => { charts.drawAnew(); draw(); });
follow();
