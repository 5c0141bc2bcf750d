// The list of runs, asked for again every few seconds while somebody looks.

import { ago, at, badge, figure, make, prepare } from "/static/common.js";
import { say } from "/static/words.js";

const AGAIN_MS = 3000;
let runs = null;
let trouble = "";

function verdict(run) {
  if (run.problem !== null) return make("span", { text: say("unreadable"), css: "bad", title: run.problem });
  if (run.bound === null || !run.steps) return make("span", { text: "–", css: "muted" });
  return make("span", { text: badge(run.bound, run.healthy), css: run.healthy ? "good" : "bad" });
}

function state(run) {
  const cell = make("td", {}, make("span", { text: say(`state_${run.state}`), css: `state is-${run.state}` }));
  if (run.exit_code) cell.append(" ", make("span", { text: say("exit_code", { code: run.exit_code }), css: "bad" }));
  return cell;
}

function line(run) {
  const name = make("td", {}, make("a", { text: run.id, href: `/run/${run.key}` }));
  if (run.argv.length) name.append(make("div", { text: run.argv.join(" "), css: "muted command" }));
  return make("tr", {},
    name,
    state(run),
    make("td", { text: run.started_unix_s === null ? "–" : ago(run.started_unix_s) }),
    make("td", { text: run.steps === null ? "–" : run.steps.toLocaleString("en-US"), css: "number" }),
    make("td", { text: run.samples_per_s === null ? "–" : figure(run.samples_per_s), css: "number" }),
    make("td", {}, verdict(run)));
}

function draw() {
  at("trouble").hidden = !trouble;
  if (trouble) at("trouble").textContent = say(trouble);
  if (runs === null) return;
  at("none").hidden = runs.length > 0;
  const table = document.querySelector("#runs table");
  table.hidden = runs.length === 0;
  table.tBodies[0].replaceChildren(...runs.map(line));
}

async function ask() {
  if (document.hidden) return;
  try {
    const answer = await fetch("/api/runs");
    trouble = answer.status === 401 ? "refused" : answer.ok ? "" : "lost";
    if (answer.ok) runs = (await answer.json()).runs;
  } catch {
    trouble = "lost";
  }
  draw();
}

prepare(draw);
ask();
setInterval(ask, AGAIN_MS);
document.addEventListener("visibilitychange", ask);
