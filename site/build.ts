import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";
import { buildDocument, buildDocument30 } from "../src/http/document/document.ts";
import { CLIENT_FILES, guides } from "./guides.ts";
import { Document } from "./openapi.ts";
import { ORIGIN } from "./origin.ts";
import { renderPage } from "./page.ts";
import { markdownPathOf, NOT_FOUND, pagesOf } from "./pages.ts";
import { referencePages } from "./reference.ts";
import { searchIndex } from "./search.ts";
import { renderLlms, renderMarkdown, renderSitemap, renderTwins } from "./text.ts";

/**
 * Builds every file that is served, by path: the documents, the pages of the docs, the client, and the files that the
 * pages load under hashed names.
 */
export async function buildSite(root: string): Promise<Map<string, Buffer>> {
  const files = new Map<string, Buffer>();
  const read = (file: string) => readFileSync(join(root, "site/page", file));
  const add = (file: string, content: Uint8Array): string => {
    const hash = createHash("sha256").update(content).digest("hex").slice(0, 12);
    const path = `docs/assets/${file.replace(".", `-${hash}.`)}`;
    files.set(path, Buffer.from(content));
    return `/${path}`;
  };
  const base = readFileSync(join(root, "site/base.css"));
  const whole = withContact(buildDocument(ORIGIN));
  const document = new Document(whole);
  const all = guides(root);
  const loaded = {
    icon: add("icon.svg", read("icon.svg")),
    style: add("page.css", Buffer.concat([base, read("page.css")])),
    script: add("page.js", await bundle(join(root, "site/page/page.js"))),
    theme: add("theme.js", await bundle(join(root, "site/page/theme.js"))),
  };
  const pages = pagesOf(all, referencePages(document), root);
  const texts = {
    "openapi.json": JSON.stringify(whole),
    "openapi-3.0.json": JSON.stringify(withContact(buildDocument30(ORIGIN))),
    ...Object.fromEntries(
      pages.map((page) => [`${page.path.slice(1)}.html`, renderPage(page, pages, whole, loaded)]),
    ),
    "docs/404.html": renderPage(NOT_FOUND, pages, whole, loaded),
    "docs/search.json": searchIndex(pages),
    "docs.md": renderMarkdown(document, all),
    "llms.txt": renderLlms(document, all),
    "sitemap.xml": renderSitemap(pages),
    ...Object.fromEntries(
      [...renderTwins(document, all)].map(([path, text]) => [markdownPathOf(path).slice(1), text]),
    ),
  };
  for (const [path, text] of Object.entries(texts)) files.set(path, Buffer.from(text));
  for (const file of CLIENT_FILES)
    files.set(`docs/client/${file}`, readFileSync(join(root, "examples/client", file)));
  return files;
}

/** The document with the deployment's own contact: the Worker fills the variables in (src/http/docs.ts). */
function withContact<D extends { info: object }>(document: D): D {
  const contact = { name: "API support", email: "{{SUPPORT_EMAIL}}", url: "{{SUPPORT_URL}}" };
  return { ...document, info: { ...document.info, contact } };
}

/** Bundles the script of the pages with its libraries. */
async function bundle(entry: string): Promise<Uint8Array> {
  const { outputFiles } = await build({
    entryPoints: [entry],
    bundle: true,
    write: false,
    minify: true,
    format: "esm",
    target: "es2023",
  });
  return outputFiles[0]?.contents ?? new Uint8Array();
}
