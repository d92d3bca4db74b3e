import { en, type Texts } from "./texts/en.ts";
import { fr } from "./texts/fr.ts";

const LANGUAGES: Record<string, Texts> = { en, fr };

function languageOf(tag: string): string {
  return tag.split("-")[0]?.toLowerCase() ?? "";
}

/**
 * The browser's first language tag that the portal supports, such as `fr-CA`; otherwise English.
 */
export const locale = navigator.languages.find((tag) => languageOf(tag) in LANGUAGES) ?? "en";

/** Its language, such as `fr`. */
export const language = languageOf(locale);

/** The texts in that language. */
export const t: Texts = LANGUAGES[language] ?? en;
