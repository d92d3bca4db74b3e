import type { Guide } from "./guides.ts";
import { renderTabs, slug, toHtml, toInline } from "./html.ts";
import { showPictures } from "./pictures.ts";

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

/** Every page, in reading order: the guides, with the reference before the changes. */
export function pagesOf(guides: Guide[], reference: Page[], root: string): Page[] {
  const pages = guides.map((guide) => guidePage(guide, root));
  const changes = pages.findIndex(({ group }) => group === "Changes");
  return pages.toSpliced(changes, 0, ...reference);
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

/** An alternative: a heading of level 3, and what follows it up to the end of its block of code. */
const ALTERNATIVE = /<h3 id="[^"]*"><a [^>]*>(.*?)<\/a><\/h3>(.*?<\/figure>)\s*/gs;

/** Alternatives that follow each other. */
const GROUP = new RegExp(`(?:${ALTERNATIVE.source})+`, "gs");

/** Renders a part of a guide, up to the next heading, with its alternatives as tabs. */
function renderPart(html: string): Pick<Page, "sections" | "body"> {
  const [, id = "", title = ""] = /^<h2 id="([^"]*)"><a [^>]*>(.*?)<\/a>/.exec(html) ?? [];
  const groups = [...html.matchAll(GROUP)].map(([group]) =>
    [...group.matchAll(ALTERNATIVE)].map(([, name = "", content = ""]) => {
      return { id: slug(name), name, content };
    }),
  );
  const texts = html.replace(GROUP, "\0").split("\0");
  const tabs = groups.map((group, i) => renderTabs([id, "tabs", i || ""].join("-"), group));
  return {
    sections: [
      { id, title, html: texts.join("").replace(/^<h2.*?<\/h2>/, "") },
      ...groups.flat().map(({ id, name, content }) => {
        return { id, title: name, html: content, isCode: true };
      }),
    ],
    body: texts.map((text, i) => text + (tabs[i] ?? "")).join(""),
  };
}
