import type { Guide } from "./guides.ts";
import { escapeHtml, renderTabs, slug, toHtml, toInline } from "./html.ts";
import type { Document } from "./openapi.ts";
import { renderReference } from "./reference.ts";

/** The files that the page loads, by path. */
export interface Files {
  icon: string;
  style: string;
  script: string;
}

/** The docs page: the quickstart, the guides, the reference. */
export function renderPage(
  document: Document,
  guides: Guide[],
  flow: string,
  files: Files,
): string {
  const { info } = document.whole;
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${escapeHtml(info.title)} – documentation</title>
<meta name="description" content="${escapeHtml(info.summary)}">
<link rel="icon" href="${files.icon}" type="image/svg+xml">
<link rel="alternate" href="/docs.md" type="text/markdown" title="The docs as Markdown">
<link rel="stylesheet" href="${files.style}">
<script type="module" src="${files.script}"></script>
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<header class="bar">
  <a class="brand" href="#top"><img src="${files.icon}" alt="" width="26" height="26">${escapeHtml(info.title)}</a>
  <span class="version">v1 · ${escapeHtml(info.version)}</span>
  <button type="button" class="find" aria-haspopup="dialog" aria-keyshortcuts="/ Control+K Meta+K"><span>Search</span><kbd>/</kbd></button>
  <label class="key"><span>API key</span><input id="key" type="password" aria-label="API key" placeholder="key_live_…" autocomplete="off" spellcheck="false"></label>
  <nav aria-label="Other forms"><a href="/openapi.json">OpenAPI</a><a href="/docs.md">Markdown</a><a href="/llms.txt">llms.txt</a></nav>
</header>
<dialog class="search" aria-label="Search">
  <input role="combobox" aria-label="Search" aria-autocomplete="list" aria-controls="found" aria-expanded="false" placeholder="Guides, operations, fields, errors, code" autocomplete="off" spellcheck="false">
  <ul id="found" role="listbox" aria-label="Found"></ul>
  <p role="status"></p>
</dialog>
<div class="frame">
<nav class="contents" aria-label="Contents">${renderContents(document, guides)}</nav>
<main id="content" tabindex="-1">
<div class="hero" id="top">
  <p class="eyebrow">Documentation</p>
  <h1>Automations, leads and runs, from your own code</h1>
  <p class="lead">Read what your agents captured and did, pause and activate automations, and receive signed events on your server. Plain HTTP and JSON, with one API key.</p>
</div>
${guides.map((guide) => renderGuide(guide, flow)).join("\n")}
<div class="reference">
  <div class="reference-head" id="reference">
    <p class="eyebrow">Reference</p>
    <h2>Every operation and event</h2>
    <p class="lead">Addresses are relative to this deployment. Times are ISO 8601 in UTC, ids are opaque, and unknown query parameters are ignored. <strong>Try it</strong> sends real requests to your workspace, with the API key from the top of this page. It is kept in this page only, and forgotten when you leave.</p>
  </div>
  ${renderReference(document)}
</div>
<footer><p>${escapeHtml(info.title)}, version ${escapeHtml(info.version)} of the contract. Every response has an <code>X-Request-Id</code>: quote it when you contact <a href="mailto:${escapeHtml(info.contact.email)}">${escapeHtml(info.contact.email)}</a>. Also as <a href="/openapi.json">OpenAPI</a>, <a href="/docs.md">Markdown</a> and <a href="/llms.txt">llms.txt</a>.</p></footer>
</main>
</div>
</body>
</html>
`;
}

function renderContents(document: Document, guides: Guide[]): string {
  const link = (id: string, text: string, badge = "", below = "") =>
    `<li><a href="#${id}">${escapeHtml(text)}${badge}</a>${below}</li>`;
  const guideLink = ({ id, title, text }: Guide) => {
    const parts = [...text.matchAll(/^### (.+)$/gm)].map(([, part = ""]) =>
      link(`${id}-${slug(part)}`, part),
    );
    return link(id, title, "", parts.length > 0 ? `<ul>${parts.join("")}</ul>` : "");
  };
  const groups = document.groups.map(({ name, entries }) => {
    const links = entries.map(({ method, operation }) =>
      link(
        operation.operationId,
        operation.summary,
        `<span class="method ${method.toLowerCase()}">${method === "DELETE" ? "DEL" : method}</span>`,
      ),
    );
    return `<p>${name}</p><ul>${links.join("")}</ul>`;
  });
  return `<details open><summary>Contents</summary><p>Guides</p><ul>${guides.map(guideLink).join("")}</ul>${groups.join("")}</details>`;
}

/** A guide; its level-4 headings name alternatives. */
function renderGuide({ id, title, text }: Guide, flow: string): string {
  const html = toHtml(text)
    .replace("<!-- flow -->", `<figure class="picture">${flow}</figure>`)
    .replaceAll('<h3 id="', `<h3 id="${id}-`);
  const [before, ...parts] = html.split(/<h4 id="[^"]*">/);
  const tabs = parts.map((part) => {
    const [name = "", content = ""] = part.split("</h4>");
    return { name, content };
  });
  return `<section class="guide" id="${id}" aria-labelledby="${id}-title"><h2 id="${id}-title"><a href="#${id}">${toInline(title)}</a></h2>${before}${tabs.length > 0 ? renderTabs(id, tabs) : ""}</section>`;
}
