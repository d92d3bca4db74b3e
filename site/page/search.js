import MiniSearch from "minisearch";

const SHOWN = 12;
/** Characters of a text around what was found. */
const AROUND = 60;

const dialog = document.querySelector("dialog.search");
const input = dialog.querySelector("input");
const list = dialog.querySelector("ul");

/** Made from the page when the search is first opened. */
let index;

document.querySelector(".find").addEventListener("click", open);
addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input, textarea");
  const isShortcut = (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k";
  if (!isShortcut && (isTyping || event.key !== "/")) return;
  event.preventDefault();
  open();
});

function open() {
  index ??= makeIndex();
  dialog.showModal();
  input.select();
}

/** Everything in the page that has an address: guides and their parts, alternatives, operations. */
function makeIndex() {
  const made = new MiniSearch({
    fields: ["title", "text"],
    storeFields: ["title", "text"],
    // `automation_not_found` is found as a whole and by its parts.
    tokenize: (text) => wordsOf(text).flatMap((word) => [word, ...word.split(/[_.-]/).slice(1)]),
    // `rotating`, `rotated` and `rotation` are one word.
    processTerm: (word) => word.toLowerCase().replace(/(?<=\w{4})(ions?|ings?|ed|e?s|e)$/, ""),
    searchOptions: { tokenize: wordsOf, boost: { title: 3 }, prefix: true, fuzzy: 0.2 },
  });
  for (const operation of document.querySelectorAll(".operation")) {
    const [title, ...parts] = operation.querySelector(".about").children;
    made.add({
      id: operation.id,
      title: textOf(title),
      text: parts.map(textOf).join(" "),
    });
  }
  for (const guide of document.querySelectorAll(".guide")) {
    const title = textOf(guide.querySelector("h2"));
    let entry = { id: guide.id, title, text: "" };
    for (const part of guide.children) {
      if (part.matches("h3")) {
        made.add(entry);
        entry = { id: part.id, title: `${title} › ${textOf(part)}`, text: "" };
      } else if (!part.matches("h2, .tabs")) entry.text += `${textOf(part)} `;
      for (const tab of part.querySelectorAll(".tab"))
        made.add({
          id: tab.id,
          title: `${title} › ${textOf(tab.querySelector("summary"))}`,
          text: textOf(tab.querySelector("code")),
        });
    }
    made.add(entry);
  }
  return made;
}

function wordsOf(text) {
  return text.match(/[\p{L}\p{N}]+([_.-][\p{L}\p{N}]+)*/gu) ?? [];
}

/** Cells and paragraphs are apart, whatever is between them in the source. */
function textOf(element) {
  const texts = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
  const found = [];
  while (texts.nextNode()) found.push(texts.currentNode.data);
  return found
    .join(element.matches("code") ? "" : " ")
    .replace(/\s+/g, " ")
    .trim();
}

input.addEventListener("input", () => {
  const all = index.search(input.value, { combineWith: "AND" });
  const found = (all.length > 0 ? all : index.search(input.value)).slice(0, SHOWN);
  list.replaceChildren(...found.map(optionOf));
  const isVain = found.length === 0 && input.value.trim() !== "";
  dialog.querySelector("[role=status]").textContent = isVain ? "Nothing found." : "";
  input.setAttribute("aria-expanded", found.length > 0);
  select(list.querySelector("[role=option]"));
});

function optionOf({ id, title, text, terms }, place) {
  const option = document.createElement("li");
  option.id = `found-${place}`;
  option.role = "option";
  option.dataset.target = id;
  const name = document.createElement("strong");
  name.textContent = title;
  const excerpt = document.createElement("span");
  excerpt.append(...excerptOf(text, terms));
  option.append(name, excerpt);
  return option;
}

/** The text around the first term, which is marked. */
function excerptOf(text, terms) {
  const places = terms.map((term) => text.toLowerCase().indexOf(term));
  const at = Math.max(0, places.find((place) => place >= 0) ?? text.length);
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

function go({ dataset: { target } }) {
  dialog.close();
  // A tab has no box of its own (page.css), and page.js opens it.
  const found = document.getElementById(target);
  location.hash = target;
  (found.closest(".tabs") ?? found).scrollIntoView({ behavior: "instant" });
}
