import MiniSearch from "minisearch";
import type { Entry } from "../search.ts";

/** Returns a search of the places in the docs, which finds the best match first. */
export function makeSearch(entries: Entry[]) {
  const index = new MiniSearch<Entry>({
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
  index.addAll(entries);
  /** Finds the places that have all of the words, or else some of them. */
  return (words: string) => {
    const all = index.search(words, { combineWith: "AND" });
    return all.length > 0 ? all : index.search(words);
  };
}

function wordsOf(text: string): string[] {
  return text.match(/[\p{L}\p{N}]+([_.-][\p{L}\p{N}]+)*/gu) ?? [];
}
