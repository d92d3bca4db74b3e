import { makeSearch } from "./ranking.ts";

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

/** Finds places by words; made when the search is first opened. */
let find;

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
  find ??= makeSearch(await entries());
  search();
}

input.addEventListener("input", search);

function search() {
  if (!find) return;
  const found = find(input.value).slice(0, SHOWN);
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
