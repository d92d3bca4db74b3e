import { en, type Texts } from "./texts/en.ts";
import { fr } from "./texts/fr.ts";

const LANGUAGES = new Map<string, Texts>([
  ["en", en],
  ["fr", fr],
]);
const KEPT_AS = "portal-language";

function languageOf(tag: string): string {
  return tag.split("-")[0]?.toLowerCase() ?? "";
}

/** Reads the language that the reader chose; null without one, or if the browser blocks storage. */
function readChoice(): string | null {
  try {
    return localStorage.getItem(KEPT_AS);
  } catch {
    return null;
  }
}

/** Remembers the choice of a language in this browser, and shows the page in it. */
export function chooseLanguage(name: string): void {
  try {
    localStorage.setItem(KEPT_AS, name);
  } catch {
    // If the browser blocks storage, a reload would end the session, too.
    return;
  }
  location.reload();
}

const choice = readChoice() ?? "";

/** The language of the page, such as `fr`: the reader's choice, or the browser's first one that the portal supports. */
export const language =
  [choice, ...navigator.languages].map(languageOf).find((name) => LANGUAGES.has(name)) ?? "en";

/** The browser's tag for this language, such as `fr-CA`. */
export const locale = navigator.languages.find((tag) => languageOf(tag) === language) ?? language;

/** The texts in this language. */
export const t: Texts = LANGUAGES.get(language) ?? en;

/** All languages, with their names in themselves. */
export const languages = [...LANGUAGES].map(([name, { languageName }]) => ({ name, languageName }));
