import { Marked } from "marked";
import { codeBlock, escapeHtml } from "./highlight.ts";

/**
 * Renders alternatives as tabs, of which the first one is shown.
 *
 * @param group the name of this group of alternatives, unique in the page.
 */
export function renderTabs(
  group: string,
  tabs: { id: string; name: string; content: string }[],
): string {
  const panels = tabs.map(({ id, name, content }, i) => {
    const open = i === 0 ? " open" : "";
    return `<details name="${group}" class="tab"${open} id="${id}"><summary>${name}</summary>${content}</details>`;
  });
  return `<div class="tabs">${panels.join("")}</div>`;
}

/** Returns the anchor of a heading. */
export function slug(title: string): string {
  return title
    .toLowerCase()
    .replace(/[^a-z0-9]+/g, "-")
    .replace(/^-|-$/g, "");
}

const marked = new Marked({
  gfm: true,
  renderer: {
    code: ({ text, lang }) => codeBlock(text, lang ?? ""),
    table(token) {
      const cells = (row: typeof token.header, tag: string) =>
        row
          .map((cell, i) => {
            const name =
              tag === "td" ? ` data-name="${escapeHtml(token.header[i]?.text ?? "")}"` : "";
            return `<${tag}${name}>${this.parser.parseInline(cell.tokens)}</${tag}>`;
          })
          .join("");
      const rows = token.rows.map((row) => `<tr>${cells(row, "td")}</tr>`).join("");
      return `<div class="table" tabindex="0" role="group" aria-label="${escapeHtml(token.header[0]?.text ?? "")} table"><table><thead><tr>${cells(token.header, "th")}</tr></thead><tbody>${rows}</tbody></table></div>`;
    },
    // Not encoded: an address may be a variable that the Worker fills in.
    link({ href, tokens }) {
      return `<a href="${escapeHtml(href)}">${this.parser.parseInline(tokens)}</a>`;
    },
    // In the Markdown of all docs, a guide's title has level 2; on its own page, level 1.
    heading({ tokens, depth, text }) {
      const id = slug(text);
      const level = depth - 1;
      return `<h${level} id="${id}"><a href="#${id}">${this.parser.parseInline(tokens)}</a></h${level}>`;
    },
  },
});

/** Renders Markdown as HTML. */
export function toHtml(markdown: string): string {
  return marked.parse(markdown, { async: false });
}

/** Renders Markdown of one paragraph as HTML, without the paragraph element. */
export function toInline(markdown: string): string {
  return marked.parseInline(markdown, { async: false });
}
