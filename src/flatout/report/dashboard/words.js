// The words of both languages are put in when this is served. The verdict's sentence and what is said of a problem come
// with the report, in both; what has no Chinese is shown as it was written.

const WORDS = __WORDS__;

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
