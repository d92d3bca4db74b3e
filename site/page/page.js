import { codeBlock, highlight } from "../highlight.ts";
import { LANGUAGES } from "../requests.ts";
import { entries } from "./search.js";

/** Copies the code of a block, or the page as Markdown. Blocks may be added later, so the document listens. */
document.addEventListener("click", async ({ target }) => {
  const button = target.closest("button.copy, button.copy-page");
  if (!button) return;
  const name = button.textContent;
  const { markdown } = button.dataset;
  const text = markdown
    ? await (await fetch(markdown)).text()
    : button.closest("figure").querySelector("code").textContent;
  await navigator.clipboard.writeText(text);
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = name), 1_500);
});
for (const button of document.querySelectorAll("button.copy-page")) button.hidden = false;

/** On a narrow screen the contents are folded, and fold again once an entry is chosen. */
const contents = document.querySelector(".contents details");
const narrow = matchMedia("(width < 1000px)");
const fold = () => (contents.open = !narrow.matches);
narrow.addEventListener("change", fold);
fold();
contents.addEventListener("click", (event) => {
  if (event.target.closest("a") && narrow.matches) contents.open = false;
});

/** Marks the section being read: the last one that begins above a quarter of the window. */
const links = new Map(
  [...document.querySelectorAll(".contents li li a, .parts a")]
    .filter(({ pathname }) => pathname === location.pathname)
    .map((link) => [link.hash.slice(1), link]),
);
const sections = [...links.keys()].map((id) => document.getElementById(id));
const markRead = () => {
  const read = sections.findLast(
    (section) => section.getBoundingClientRect().top < innerHeight / 4,
  );
  for (const link of links.values()) link.removeAttribute("aria-current");
  links.get(read?.id)?.setAttribute("aria-current", "true");
};
// A jump passes no section on its way, so an observer of the sections would miss it.
document.addEventListener("scroll", markRead, { passive: true });
markRead();

/** Shows the current page in the contents. Scrolling it into view would make the next Tab start from there. */
const current = contents.querySelector("li:has(> [aria-current=page])");
const list = document.querySelector(".contents");
if (current) list.scrollTop = Math.max(0, current.offsetTop - list.clientHeight / 2);

/**
 * Opening one alternative closes the others of its group, and opens it in every group that has it. Choices
 * are kept for other pages; of two in a group, the later one is open.
 */
const CHOSEN = "docs-alternatives";
const chosen = new Set(storedChoices());
for (const name of chosen) choose(name);
for (const name of document.querySelectorAll(".tab > summary"))
  name.addEventListener("click", (event) => {
    event.preventDefault();
    const before = name.getBoundingClientRect().top;
    choose(name.textContent);
    chosen.delete(name.textContent);
    chosen.add(name.textContent);
    // The name stays where it is on the screen, whatever opens or closes above it.
    scrollBy({ top: name.getBoundingClientRect().top - before, behavior: "instant" });
    localStorage.setItem(CHOSEN, JSON.stringify([...chosen]));
  });

function storedChoices() {
  try {
    return JSON.parse(localStorage.getItem(CHOSEN)) ?? [];
  } catch {
    // This browser stores nothing.
    return [];
  }
}

function choose(alternative) {
  for (const name of document.querySelectorAll(".tab > summary"))
    if (name.textContent === alternative) name.parentElement.open = true;
}

/** A link to an alternative, or to a form, opens it. One from when the docs were one page leads to where its section is. */
async function openTarget() {
  const anchor = decodeURIComponent(location.hash.slice(1));
  if (!anchor) return;
  const target = document.getElementById(anchor);
  if (target?.matches("details")) {
    target.open = true;
    (target.closest(".tabs") ?? target).scrollIntoView();
  } else if (!target && location.pathname === "/docs") {
    const entry = (await entries()).find(({ former }) => former === anchor);
    if (entry) location.replace(entry.url);
  }
}
addEventListener("hashchange", openTarget);
openTarget();

/** The theme goes from the system's to light, to dark, and back. */
const THEMES = ["system", "light", "dark"];
const themeButton = document.querySelector("button.theme");
nameTheme();
themeButton.addEventListener("click", () => {
  const { dataset } = document.documentElement;
  const next = THEMES[(THEMES.indexOf(dataset.theme ?? "system") + 1) % THEMES.length];
  if (next === "system") delete dataset.theme;
  else dataset.theme = next;
  remember(() => localStorage, "docs-theme", next === "system" ? "" : next);
  nameTheme();
});

function nameTheme() {
  const { theme } = document.documentElement.dataset;
  themeButton.setAttribute("aria-label", `Theme: ${theme ?? "as the system"}`);
}

/** Stores a value, or removes it if it is empty; a browser that stores nothing forgets it. */
function remember(storage, name, value) {
  try {
    if (value) storage().setItem(name, value);
    else storage().removeItem(name);
  } catch {}
}

/** The key is kept in this tab only, until it is closed or the key is removed. */
const KEY = "docs-api-key";
const key = document.getElementById("key");
const forget = document.querySelector(".key button");
if (key) {
  try {
    key.value = sessionStorage.getItem(KEY) ?? "";
  } catch {}
  const keep = () => {
    remember(() => sessionStorage, KEY, key.value);
    forget.hidden = key.value === "";
  };
  keep();
  key.addEventListener("input", keep);
  forget.addEventListener("click", () => {
    key.value = "";
    keep();
    key.focus();
  });
}

/** Sends the requests of the forms with that key. The examples beside a form follow what it holds. */
for (const form of document.querySelectorAll(".try form")) {
  form.addEventListener("input", () => showExamples(form));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const result = form.querySelector(".result");
    if (key.value === "") {
      result.textContent = "Enter your API key first, at the top of the page.";
      key.focus();
      return;
    }
    const { url, method, headers, body } = requestOf(form);
    if (body?.includes("…")) {
      result.textContent = "Replace “…” in the body first.";
      form.elements.body.focus();
      return;
    }
    if (method === "DELETE" && !confirm(`${method} ${url.pathname}: this cannot be undone.`))
      return;
    headers.Authorization = `Bearer ${key.value}`;
    if (body) headers["Content-Type"] = "application/json";
    result.textContent = "…";
    try {
      const answer = await fetch(url, { method, headers, ...(body && { body }) });
      show(result, answer, await answer.text());
    } catch {
      result.textContent = "No response received.";
    }
  });
}

/** Makes the request that a form holds; an identifier that is not filled in is the example's. */
function requestOf(form) {
  const url = new URL(form.dataset.path, location.origin);
  const headers = {};
  for (const { name, value, placeholder, dataset } of form.querySelectorAll("input"))
    if (dataset.in === "path") {
      const id = encodeURIComponent(value || placeholder);
      url.pathname = decodeURI(url.pathname).replace(`{${name}}`, id);
    } else if (value !== "" && dataset.in === "header") headers[name] = value;
    else if (value !== "") url.searchParams.set(name, value);
  return { url, method: form.dataset.method, headers, body: form.elements.body?.value };
}

function showExamples(form) {
  const { url, method, headers, body: text } = requestOf(form);
  let body;
  try {
    body = text && JSON.parse(text);
  } catch {
    // Half of a body is no example.
    return;
  }
  const href = url.href.replaceAll("'", "%27").replaceAll("!", "%21");
  for (const tab of form.closest(".sample").querySelectorAll(".request .tab")) {
    const name = tab.querySelector("summary").textContent;
    const language = LANGUAGES.find((one) => one.name === name);
    const code = language.write({ method, url: href, headers, body });
    // The highlighter escapes the text.
    tab.querySelector("code").innerHTML = highlight(code, language.highlight);
  }
}

function show(result, answer, text) {
  const status = document.createElement("p");
  const badge = document.createElement("span");
  badge.className = answer.ok ? "status good" : "status";
  badge.textContent = answer.status;
  const left = answer.headers.get("X-RateLimit-Remaining");
  const name = answer.headers.get("X-Request-Id");
  status.append(badge, ` ${left} requests left · X-Request-Id ${name}`);
  const block = document.createElement("div");
  const pretty = text && JSON.stringify(JSON.parse(text), null, 2);
  // The highlighter escapes the text.
  if (text) block.innerHTML = codeBlock(pretty, "json", "Response");
  result.replaceChildren(status, ...(answer.ok ? [] : [explain(answer)]), block);
}

/** Links the explanation of an error, whose message is for the users of the app. */
function explain(answer) {
  const note = document.createElement("p");
  const [, help] = /<([^>]*)>; rel="help"/.exec(answer.headers.get("Link") ?? "") ?? [];
  const link = document.createElement("a");
  link.href = help ?? "/docs/guides/errors";
  link.textContent = "What this error means";
  note.append("The message is in French, for the users of the app. ", link);
  return note;
}
