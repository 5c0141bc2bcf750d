/* The switches of the report, the words under the bar, and the printed page. */
"use strict";

(() => {
  const PAPER = 680;
  const root = document.documentElement;
  const data = JSON.parse(document.getElementById("data").textContent);
  const place = document.getElementById("charts");
  const charts = place && new flatoutCharts(place, data, () => data.words[root.dataset.lang]);
  const on = (id, what) => document.getElementById(id)?.addEventListener("click", what);

  on("language", (event) => {
    const language = root.dataset.lang === "zh" ? "en" : "zh";
    root.dataset.lang = language;
    root.lang = language;
    event.currentTarget.textContent = language === "zh" ? "English" : "中文";
    charts?.draw();
  });

  const isDark = () => (root.dataset.theme
    ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches);
  on("theme", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    charts?.draw();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => charts?.draw());

  for (const block of document.querySelectorAll(".block")) {
    const told = block.closest(".flame-wrap").querySelector(".detail");
    const tell = () => { told.textContent = block.dataset.detail; };
    block.addEventListener("mouseenter", tell);
    block.addEventListener("focus", tell);
  }

  /* On paper all of the run is unfolded, and light; what the catalogue says of any run stays folded. */
  let before = null;
  addEventListener("beforeprint", () => {
    before = { theme: root.dataset.theme, closed: [...document.querySelectorAll("details:not([open]):not(.aside)")] };
    before.closed.forEach((one) => { one.open = true; });
    root.dataset.theme = "light";
    charts?.draw(PAPER);
  });
  addEventListener("afterprint", () => {
    if (!before) return;
    before.closed.forEach((one) => { one.open = false; });
    if (before.theme) root.dataset.theme = before.theme;
    else delete root.dataset.theme;
    charts?.draw();
  });

  if (!charts) return;
  charts.draw();
  on("zoom-in", () => charts.by(0.5));
  on("zoom-out", () => charts.by(2));
  on("zoom-reset", () => charts.reset());
  let width = place.clientWidth;
  new ResizeObserver(() => {
    if (place.clientWidth === width) return;
    width = place.clientWidth;
    charts.resize();
  }).observe(place);
})();

