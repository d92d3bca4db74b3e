import MiniSearch from "minisearch";

const SHOWN = 12;
/** Characters of a text around what was found. */
const AROUND = 60;

const dialog = document.querySelector("dialog.search");
const input = dialog.querySelector("input");
const list = dialog.querySelector("ul");

/** Loaded when they are first needed: what has an address in the docs (site/search.ts). */
let loaded;
export function entries() {
  loaded ??= fetch("/docs/search.json").then((response) => response.json());
  return loaded;
}

/** Made when the search is first opened. */
let index;

document.querySelector(".find").addEventListener("click", open);
addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input, textarea");
  const isShortcut = (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k";
  if (!isShortcut && (isTyping || event.key !== "/")) return;
  event.preventDefault();
  open();
});

async function open() {
  dialog.showModal();
  input.select();
  index ??= makeIndex(await entries());
  search();
}

function makeIndex(all) {
  const made = new MiniSearch({
    idField: "url",
    fields: ["title", "codes", "text", "code"],
    storeFields: ["title", "text", "code"],
    // `automation_not_found` is found as a whole and by its parts.
    tokenize: (text) => wordsOf(text).flatMap((word) => [word, ...word.split(/[_.-]/).slice(1)]),
    // `rotating`, `rotated` and `rotation` are one word, and so are `retry` and `retries`.
    processTerm: (word) =>
      word.toLowerCase().replace(/(?<=\w{4})(ions?|ings?|i?ed|ies|e?s|e|y)$/, ""),
    searchOptions: {
      tokenize: wordsOf,
      boost: { title: 8, codes: 3, code: 0.5 },
      // A page comes before its parts, and what is before what was.
      boostDocument: (url) =>
        url.startsWith("/docs/changelog") ? 0.3 : url.includes("#") ? 1 : 1.5,
      // A status is another one, not a misspelling.
      prefix: (term) => !/^\d+$/.test(term),
      fuzzy: (term) => (/^\d+$/.test(term) ? false : 0.2),
    },
  });
  made.addAll(all);
  return made;
}

function wordsOf(text) {
  return text.match(/[\p{L}\p{N}]+([_.-][\p{L}\p{N}]+)*/gu) ?? [];
}

input.addEventListener("input", search);

function search() {
  if (!index) return;
  const all = index.search(input.value, { combineWith: "AND" });
  const found = (all.length > 0 ? all : index.search(input.value)).slice(0, SHOWN);
  list.replaceChildren(...found.map(optionOf));
  const isVain = found.length === 0 && input.value.trim() !== "";
  dialog.querySelector("[role=status]").textContent = isVain ? "Nothing found." : "";
  input.setAttribute("aria-expanded", found.length > 0);
  select(list.querySelector("[role=option]"));
}

function optionOf({ id: url, title, text, code, terms }, place) {
  const option = document.createElement("li");
  option.id = `found-${place}`;
  option.role = "option";
  option.dataset.url = url;
  const name = document.createElement("strong");
  name.textContent = title;
  const excerpt = document.createElement("span");
  excerpt.append(...excerptOf(text || code, terms));
  option.append(name, excerpt);
  return option;
}

/** The text around the first term, which is marked. */
function excerptOf(text, terms) {
  const places = terms.map((term) => text.toLowerCase().indexOf(term));
  const at = places.find((place) => place >= 0);
  if (at === undefined) return [`${text.slice(0, 2 * AROUND)}…`];
  const [{ length }] = /^[\p{L}\p{N}_]*/u.exec(text.slice(at));
  const start = Math.max(0, at - AROUND);
  const mark = document.createElement("mark");
  mark.textContent = text.slice(at, at + length);
  const before = text.slice(start, at).replace(start > 0 ? /^\S*/ : "", "");
  const after = text.slice(at + length, at + length + AROUND).replace(/\S*$/, "");
  return [start > 0 ? "…" : "", before, mark, after, "…"];
}

function select(option) {
  for (const other of list.children) other.removeAttribute("aria-selected");
  if (!option) return input.removeAttribute("aria-activedescendant");
  option.setAttribute("aria-selected", "true");
  option.scrollIntoView({ block: "nearest" });
  input.setAttribute("aria-activedescendant", option.id);
}

input.addEventListener("keydown", (event) => {
  const chosen = list.querySelector("[aria-selected]");
  if (event.key === "Enter" && chosen) go(chosen);
  const next = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
  if (!next || !chosen) return;
  event.preventDefault();
  select(chosen[next] ?? chosen);
});

list.addEventListener("click", (event) => {
  const option = event.target.closest("[role=option]");
  if (option) go(option);
});

dialog.addEventListener("click", (event) => {
  if (event.target === dialog) dialog.close();
});

function go({ dataset: { url } }) {
  dialog.close();
  location.assign(url);
}
