import type { Guide } from "./guides.ts";
import { renderTabs, slug, toHtml, toInline } from "./html.ts";
import type { Document } from "./openapi.ts";
import { showPictures } from "./pictures.ts";
import { referencePages } from "./reference.ts";

/** A page of the docs. */
export interface Page {
  path: string;
  /** The group in the table of contents. */
  group: string;
  title: string;
  /** The beginning of the page, followed by the parts that have an anchor. */
  sections: Section[];
  /** Its HTML, below the title. */
  body: string;
}

/** A result of the search: the beginning of a page, whose `id` is empty, a part of the page, or an alternative. */
export interface Section {
  id: string;
  title: string;
  html: string;
  /** The mark beside the title in the table of contents. */
  badge?: string;
  isCode?: boolean;
}

/** Every page, in reading order: the guides, the reference before the changes. */
export function pagesOf(document: Document, guides: Guide[], root: string): Page[] {
  const pages = guides.map((guide) => guidePage(guide, root));
  const changes = pages.findIndex(({ group }) => group === "Changes");
  return pages.toSpliced(changes, 0, ...referencePages(document));
}

/** The page that a browser gets for a wrong address. */
export const NOT_FOUND: Page = {
  path: "/docs/404",
  group: "",
  title: "Page not found",
  sections: [],
  body: `<p>There is no page at this address. Press <kbd>/</kbd> to search, or start with the <a href="/docs">Quickstart</a>, the <a href="/docs/reference">reference</a> or <a href="/docs/guides/troubleshooting">Troubleshooting</a>.</p>`,
};

/** Returns the path of a page as Markdown. `/docs.md` has all of the docs, so the first page is an index. */
export function markdownPathOf(path: string): string {
  return path === "/docs" ? "/docs/index.md" : `${path}.md`;
}

/** Returns the part of a path after its last slash. */
export function nameOfPage({ path }: { path: string }): string {
  return path.split("/").at(-1) ?? "";
}

function guidePage({ path, group, title, text }: Guide, root: string): Page {
  const html = showPictures(toHtml(text), root);
  // The line break makes a beginning, if only an empty one, of every page.
  const parts = `\n${html}`.split(/(?=<h2 )/).map(renderPart);
  return {
    path,
    group,
    title: toInline(title),
    sections: parts.flatMap(({ sections }) => sections),
    body: parts.map(({ body }) => body).join(""),
  };
}

/** Renders a part of a guide, up to the next heading; its level-3 headings name alternatives. */
function renderPart(html: string): Pick<Page, "sections" | "body"> {
  const [before = "", ...alternatives] = html.split(/<h3 id="[^"]*"><a [^>]*>/);
  const tabs = alternatives.map((alternative) => {
    const [name = "", content = ""] = alternative.split("</a></h3>");
    return { id: slug(name), name, content };
  });
  const [, id = "", title = ""] = /^<h2 id="([^"]*)"><a [^>]*>(.*?)<\/a>/.exec(before) ?? [];
  return {
    sections: [
      { id, title, html: before.replace(/^<h2.*?<\/h2>/, "") },
      ...tabs.map(({ id, name, content }) => ({ id, title: name, html: content, isCode: true })),
    ],
    body: before + (tabs.length > 0 ? renderTabs(`${id}-tabs`, tabs) : ""),
  };
}
