import { nameOfPage, type Page, type Section } from "./pages.ts";

/** A place in the docs in the index of the search (site/page/search.js). */
export interface Entry {
  /** Its path, with its anchor. */
  url: string;
  /** The anchor that it had when the docs were one page: `/docs#…` still leads to it. */
  former: string;
  title: string;
  /** The text in it that is set as code, and the statuses that it names. */
  codes: string;
  text: string;
  /** The program that it shows. */
  code: string;
}

/** Makes the index of the search, as JSON: every place in the docs that has an anchor. */
export function searchIndex(pages: Page[]): string {
  return JSON.stringify(
    pages.flatMap((page) => page.sections.map((section) => entryOf(page, section))),
  );
}

function entryOf(page: Page, { id, title, html, isCode }: Section): Entry {
  const isReference = page.group === "Reference";
  const name =
    nameOfPage(page) + (isReference && page.path !== "/docs/reference" ? "-reference" : "");
  const text = textOf(html);
  return {
    url: page.path + (id && `#${id}`),
    former: isReference && id ? id : [name, id].filter(Boolean).join("-"),
    title: textOf(isReference && id ? title : [page.title, title].filter(Boolean).join(" › ")),
    codes: isCode ? "" : codesOf(html, text),
    text: isCode ? "" : text,
    code: isCode ? text : "",
  };
}

function codesOf(html: string, text: string): string {
  const codes = [...html.matchAll(/(?<!<pre[^>]*>)<code>(.*?)<\/code>/g)];
  const statuses = text.match(/\b[2-5]\d\d\b/g) ?? [];
  return [...new Set([...codes.map(([, code = ""]) => textOf(code)), ...statuses])].join(" ");
}

/** Converts HTML to text. Cells and paragraphs are separated, whatever is between them in the source. */
function textOf(html: string): string {
  return html
    .replace(/<button.*?<\/button>|<\/?(a|b|code|em|span|strong|wbr)\b[^>]*>/g, "")
    .replace(/<[^>]+>/g, " ")
    .replaceAll("&lt;", "<")
    .replaceAll("&gt;", ">")
    .replaceAll("&quot;", '"')
    .replace(/&#(39|x27);/g, "'")
    .replaceAll("&amp;", "&")
    .replace(/\s+/g, " ")
    .trim();
}
