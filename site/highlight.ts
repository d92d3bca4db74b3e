import hljs from "highlight.js/lib/core";
import bash from "highlight.js/lib/languages/bash";
import csharp from "highlight.js/lib/languages/csharp";
import go from "highlight.js/lib/languages/go";
import http from "highlight.js/lib/languages/http";
import java from "highlight.js/lib/languages/java";
import json from "highlight.js/lib/languages/json";
import php from "highlight.js/lib/languages/php";
import powershell from "highlight.js/lib/languages/powershell";
import python from "highlight.js/lib/languages/python";
import ruby from "highlight.js/lib/languages/ruby";
import sql from "highlight.js/lib/languages/sql";
import typescript from "highlight.js/lib/languages/typescript";

const LANGUAGES = {
  csharp,
  go,
  http,
  java,
  js: typescript,
  json,
  php,
  powershell,
  python,
  ruby,
  sh: bash,
  sql,
  ts: typescript,
};
for (const [name, language] of Object.entries(LANGUAGES)) hljs.registerLanguage(name, language);

/** Escapes text for HTML. */
export function escapeHtml(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;");
}

/** Renders code as HTML, in colour if the language is known. The page uses it for what changes in it. */
export function highlight(code: string, language: string): string {
  return language in LANGUAGES ? hljs.highlight(code, { language }).value : escapeHtml(code);
}

/** The titles of blocks of code that have no name of their own, by language. */
const TITLES: Record<string, string> = {
  sh: "Shell",
  powershell: "PowerShell",
  json: "JSON",
  http: "HTTP",
  sql: "SQL",
};

/** Renders a block of code, highlighted, with a copy button. Commands are wrapped rather than scrolled. */
export function codeBlock(code: string, language: string, label = ""): string {
  const title = label || TITLES[language] || "";
  const wrap = ["sh", "powershell"].includes(language) ? " wrap" : "";
  return `<figure class="code${wrap}"><figcaption>${escapeHtml(title)}<button type="button" class="copy">Copy</button></figcaption><pre tabindex="0" aria-label="${escapeHtml(title || "Code")}"><code>${highlight(code, language)}</code></pre></figure>`;
}
