import { readFileSync } from "node:fs";
import { join } from "node:path";
import { POST_TIMEOUT_MS } from "../src/contract/limits.ts";

/** The pictures of the guides, each with a description for the docs as Markdown. */
const PICTURES = {
  flow: `A lead, a run or a pause becomes an event. It is stored with its id and sent to your URL, signed. Any 2xx within ${POST_TIMEOUT_MS / 1000} seconds acknowledges it. Anything else is retried.`,
  concepts:
    "A workspace has agents. An automation acts for an agent. Each of its reactions is a run, which may capture a lead. A new lead, a finished run or a pause becomes an event. Each webhook that lists its type gets a delivery of it, which has one attempt or several.",
};

type Picture = keyof typeof PICTURES;

/** Returns the placeholder of a picture in the Markdown of a guide. */
function placeOfPicture(name: Picture): string {
  return `<!-- picture: ${name} -->`;
}

/** Puts the pictures into the HTML of a guide. */
export function showPictures(html: string, root: string): string {
  return replaceEach(html, (name) => {
    const svg = readFileSync(join(root, "site/page", `${name}.svg`), "utf8");
    return `<figure class="picture">${svg}</figure>`;
  });
}

/** Replaces the pictures with their descriptions. */
export function describePictures(text: string): string {
  return replaceEach(text, (name) => PICTURES[name]);
}

function replaceEach(text: string, of: (name: Picture) => string): string {
  const names = Object.keys(PICTURES) as Picture[];
  return names.reduce((whole, name) => whole.replace(placeOfPicture(name), () => of(name)), text);
}
