import { escapeHtml } from "./highlight.ts";
import type { Part } from "./openapi.ts";
import { markdownPathOf, NOT_FOUND, type Page, type Section } from "./pages.ts";

/** The files that the page loads, by path. */
export interface Files {
  icon: string;
  style: string;
  script: string;
  /** Sets the theme before anything is drawn. */
  theme: string;
}

/** Renders a page of the docs, with the parts that all pages have in common. */
export function renderPage(page: Page, pages: Page[], { info }: Part, files: Files): string {
  const product = escapeHtml(info.title);
  const isStart = page.path === "/docs";
  const isReference = page.group === "Reference";
  const hasOperations = page.sections.some(({ badge }) => badge);
  const title = hasOperations ? `${page.title} reference` : page.title;
  const contact = escapeHtml(info.contact.email);
  const heading = `${isStart ? "Documentation" : title} – ${product}`;
  const markdown = page === NOT_FOUND ? "/docs.md" : markdownPathOf(page.path);
  const parts = isReference ? [] : page.sections.filter(({ id, isCode }) => id && !isCode);
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>${heading}</title>
<meta name="description" content="${escapeHtml(info.summary)}">
<meta property="og:title" content="${heading}">
<meta property="og:description" content="${escapeHtml(info.summary)}">
<meta property="og:type" content="article">
<link rel="icon" href="${files.icon}" type="image/svg+xml">
<link rel="alternate" href="${markdown}" type="text/markdown" title="This page as Markdown">
<link rel="stylesheet" href="${files.style}">
<script src="${files.theme}"></script>
<script type="module" src="${files.script}"></script>
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<header class="bar">
  <a class="brand" href="/docs"><img src="${files.icon}" alt="" width="26" height="26">${product}</a>
  <span class="version">v1 · ${escapeHtml(info.version)}</span>
  <button type="button" class="find" aria-haspopup="dialog" aria-keyshortcuts="/ Control+K Meta+K"><span>Search</span><kbd>/</kbd></button>
  ${hasOperations ? KEY : ""}
  <button type="button" class="theme" title="Theme" aria-label="Theme: as the system"></button>
  <nav aria-label="Other forms"><a href="/openapi.json">OpenAPI</a><a href="${markdown}">Markdown</a><a href="/llms.txt">llms.txt</a></nav>
</header>
<dialog class="search" aria-label="Search">
  <input role="combobox" aria-label="Search" aria-autocomplete="list" aria-controls="found" aria-expanded="false" placeholder="Guides, operations, fields, errors, code" autocomplete="off" spellcheck="false">
  <ul id="found" role="listbox" aria-label="Found"></ul>
  <p role="status"></p>
</dialog>
<div class="frame">
<nav class="contents" aria-label="Contents">${renderContents(page, pages)}</nav>
<main id="content" tabindex="-1">
${isStart ? HERO : ""}
<div class="${isReference ? "reference" : parts.length > 1 ? "guide parted" : "guide"}">
  ${isStart ? '<h2 class="title" id="quickstart">Quickstart</h2>' : `<h1>${page.title}</h1>`}
  ${page === NOT_FOUND ? "" : `<p class="as-text"><button type="button" class="copy-page" data-markdown="${markdown}" hidden>Copy page</button><a href="${markdown}">View as Markdown</a></p>`}
  ${parts.length > 1 ? renderParts(parts) : ""}
  <div class="prose">${page.body}${renderNeighbours(page, pages)}</div>
</div>
<footer><p>${product}, version ${escapeHtml(info.version)} of the contract. Every response has an <code>X-Request-Id</code>: quote it when you contact <a href="mailto:${contact}">${contact}</a>. Also as <a href="/openapi.json">OpenAPI</a>, <a href="/docs.md">Markdown</a> and <a href="/llms.txt">llms.txt</a>.</p></footer>
</main>
</div>
</body>
</html>
`;
}

/** The key of the requests that are sent from the page; page.js keeps it for the tab's session. */
const KEY = `<div class="key"><label for="key">API key</label><input id="key" type="password" placeholder="key_live_…" autocomplete="off" spellcheck="false"><button type="button" hidden>Forget</button></div>`;

const HERO = `<div class="hero" id="top">
  <p class="eyebrow">Documentation</p>
  <h1>Automations, leads and runs, from your own code</h1>
  <p class="lead">Read what your agents captured and did, pause and activate automations, and receive signed events on your server. Plain HTTP and JSON, with one API key.</p>
</div>`;

/** Links to every page, and to the operations of the reference. */
function renderContents(current: Page, pages: Page[]): string {
  const groups = [...Map.groupBy(pages, ({ group }) => group)].map(([group, all]) => {
    const links = all.map((page) => {
      const mark = page === current ? ' aria-current="page"' : "";
      const below = page.sections.filter(({ badge }) => badge);
      const operations = below.map(
        ({ id, title, badge }) => `<li><a href="${page.path}#${id}">${title}${badge}</a></li>`,
      );
      return `<li><a href="${page.path}"${mark}>${page.title}</a>${operations.length > 0 ? `<ul>${operations.join("")}</ul>` : ""}</li>`;
    });
    return `<p>${group}</p><ul>${links.join("")}</ul>`;
  });
  return `<details open><summary>Contents</summary>${groups.join("")}</details>`;
}

/** The parts of a page, beside its text. */
function renderParts(parts: Section[]): string {
  const links = parts.map(
    ({ id, title }) => `<li><a href="#${id}">${title.replace(/<\/?code>/g, "")}</a></li>`,
  );
  return `<nav class="parts" aria-label="On this page"><p>On this page</p><ul>${links.join("")}</ul></nav>`;
}

/** Links to the page before and the page after. */
function renderNeighbours(page: Page, pages: Page[]): string {
  const at = pages.indexOf(page);
  const links = [
    { rel: "prev", name: "Previous", to: pages[at - 1] },
    { rel: "next", name: "Next", to: pages[at + 1] },
  ].map(({ rel, name, to }) =>
    to ? `<a rel="${rel}" href="${to.path}"><span>${name}</span>${to.title}</a>` : "",
  );
  return `<nav class="neighbours" aria-label="Previous and next">${links.join("")}</nav>`;
}
