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
import { Marked } from "marked";

const LANGUAGES = {
  csharp,
  go,
  http,
  java,
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

/** The titles of blocks of code that have no name of their own, by language. */
const TITLES: Record<string, string> = {
  sh: "Shell",
  powershell: "PowerShell",
  json: "JSON",
  http: "HTTP",
  sql: "SQL",
};

/** Escapes text for HTML. */
export function escapeHtml(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll('"', "&quot;");
}

/** Renders a block of code, highlighted, with a copy button. Commands are wrapped rather than scrolled. */
export function codeBlock(code: string, language: string, label = ""): string {
  const coloured =
    language in LANGUAGES ? hljs.highlight(code, { language }).value : escapeHtml(code);
  const title = label || TITLES[language] || "";
  const wrap = ["sh", "powershell"].includes(language) ? " wrap" : "";
  return `<figure class="code${wrap}"><figcaption>${escapeHtml(title)}<button type="button" class="copy">Copy</button></figcaption><pre tabindex="0" aria-label="${escapeHtml(title || "Code")}"><code>${coloured}</code></pre></figure>`;
}

/**
 * Renders alternatives as tabs, of which the first one is shown.
 *
 * @param group the name of this group of alternatives, unique in the page.
 */
export function renderTabs(
  group: string,
  tabs: { id: string; name: string; content: string }[],
): string {
  const panels = tabs.map(({ id, name, content }, i) => {
    const open = i === 0 ? " open" : "";
    return `<details name="${group}" class="tab"${open} id="${id}"><summary>${name}</summary>${content}</details>`;
  });
  return `<div class="tabs">${panels.join("")}</div>`;
}

/** Returns the anchor of a heading. */
export function slug(title: string): string {
  return title
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-|-$/g, "");
}

const marked = new Marked({
  gfm: true,
  renderer: {
    code: ({ text, lang }) => codeBlock(text, lang ?? ""),
    table(token) {
      const cells = (row: typeof token.header, tag: string) =>
        row
          .map((cell, i) => {
            const name =
              tag === "td" ? ` data-name="${escapeHtml(token.header[i]?.text ?? "")}"` : "";
            return `<${tag}${name}>${this.parser.parseInline(cell.tokens)}</${tag}>`;
          })
          .join("");
      const rows = token.rows.map((row) => `<tr>${cells(row, "td")}</tr>`).join("");
      return `<div class="table" tabindex="0" role="group" aria-label="${escapeHtml(token.header[0]?.text ?? "")} table"><table><thead><tr>${cells(token.header, "th")}</tr></thead><tbody>${rows}</tbody></table></div>`;
    },
    // Not encoded: an address may be a variable that the Worker fills in.
    link({ href, tokens }) {
      return `<a href="${escapeHtml(href)}">${this.parser.parseInline(tokens)}</a>`;
    },
    // In the Markdown of all docs, a guide's title has level 2; on its own page, level 1.
    heading({ tokens, depth, text }) {
      const id = slug(text);
      const level = depth - 1;
      return `<h${level} id="${id}"><a href="#${id}">${this.parser.parseInline(tokens)}</a></h${level}>`;
    },
  },
});

/** Renders Markdown as HTML. */
export function toHtml(markdown: string): string {
  return marked.parse(markdown, { async: false });
}

/** Renders Markdown of one paragraph as HTML, without the paragraph element. */
export function toInline(markdown: string): string {
  return marked.parseInline(markdown, { async: false });
}
