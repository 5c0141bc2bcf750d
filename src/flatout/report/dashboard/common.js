// What both pages share: finding and making elements, figures as text, the buttons for language and theme.
// Text from a run only ever becomes a text node: whatever its name holds, it stays text.

import { currentLanguage, say, switchLanguage } from "/static/words.js";

export const at = (id) => document.getElementById(id);

export function make(tag, { text, css, title, href, lang } = {}, ...children) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  if (css) element.className = css;
  if (title) element.title = title;
  if (href) element.href = href;
  if (lang) element.lang = lang;
  element.append(...children);
  return element;
}

// Words with code between backticks, as nodes.
export const withCode = (words) => words.split("`").map((piece, n) => (n % 2 ? make("code", { text: piece }) : piece));

// Three figures that matter, as in the terminal: 1,234 · 45.6 · 3.21.
export function figure(value) {
  const digits = Math.abs(value) >= 99.95 ? 0 : Math.abs(value) >= 9.995 ? 1 : 2;
  return value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

// Something small is never shown as nothing.
export const percent = (share) => (share > 0 && share < 0.005 ? "<1%" : `${(share * 100).toFixed(0)}%`);

export function duration(seconds) {
  if (seconds < 99.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  const pad = (n) => String(n).padStart(2, "0");
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${pad(whole % 60)} s`;
  return `${Math.floor(whole / 3600)} h ${pad(Math.floor((whole % 3600) / 60))} min`;
}

export function ago(unixSeconds) {
  const seconds = Math.max(0, Date.now() / 1000 - unixSeconds);
  for (const [unit, length] of [["d", 86400], ["h", 3600], ["m", 60]]) {
    if (seconds >= length) return say(`ago_${unit}`, { n: Math.round(seconds / length) });
  }
  return say("ago_s", { n: Math.round(seconds) });
}

export function badge(bound, healthy) {
  const word = say(`bound_${bound}`);
  return healthy ? say("healthy", { bound: word }) : word;
}

const THEME = "flatout-theme";
const THEMES = ["auto", "light", "dark"];

function keptTheme() {
  try { return THEMES.includes(localStorage.getItem(THEME)) ? localStorage.getItem(THEME) : "auto"; } catch { return "auto"; }
}

// `draw` writes everything again that depends on language or colours.
export function prepare(draw) {
  let theme = keptTheme();
  const all = () => {
    document.documentElement.lang = currentLanguage() === "zh" ? "zh-CN" : "en";
    if (theme === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
    for (const element of document.querySelectorAll("[data-say]")) element.textContent = say(element.dataset.say);
    at("language").textContent = say("other_language");
    at("theme").textContent = say(`theme_${theme}`);
    draw();
  };
  at("language").addEventListener("click", () => { switchLanguage(); all(); });
  at("theme").addEventListener("click", () => {
    theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
    try { localStorage.setItem(THEME, theme); } catch { /* private window: it lasts as long as the page */ }
    all();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", all);
  all();
}
