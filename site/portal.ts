import { readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { build } from "esbuild";
import { buildDocument } from "../src/http/document/document.ts";
import { listEventFields } from "./event-fields.ts";
import { Document } from "./openapi.ts";
import { ORIGIN } from "./origin.ts";

/** The path under which the portal is served. */
const FOLDER = "portal";

/** The portal's page, and its bundled script and stylesheet under hashed names, by path. */
export async function buildPortal(root: string): Promise<Map<string, Buffer>> {
  const { outputFiles } = await build({
    entryPoints: {
      portal: join(root, "site/portal/main.tsx"),
      style: join(root, "site/portal/style/portal.css"),
    },
    bundle: true,
    write: false,
    minify: true,
    format: "esm",
    target: "es2023",
    jsx: "automatic",
    jsxImportSource: "preact",
    define: {
      EVENT_FIELDS: JSON.stringify(listEventFields(new Document(buildDocument(ORIGIN)))),
    },
    outdir: join(root, "dist/assets", FOLDER),
    entryNames: "[name].[hash]",
  });
  const files = new Map(
    outputFiles.map(({ path, contents }) => [`${FOLDER}/${basename(path)}`, Buffer.from(contents)]),
  );
  const pathOf = (kind: string) => {
    const found = [...files.keys()].find((path) => path.endsWith(kind));
    if (!found) throw new Error(`the portal has no ${kind}`);
    return `/${found}`;
  };
  const shell = readFileSync(join(root, "site/portal/index.html"), "utf8");
  // The icon is inlined, so that the page can give it the platform's colour.
  const icon = encodeURIComponent(readFileSync(join(root, "site/page/icon.svg"), "utf8"));
  const page = shell
    .replace(/%(\.\w+)%/g, (_, kind: string) => pathOf(kind))
    .replace("%icon%", `data:image/svg+xml,${icon}`);
  return files.set(`${FOLDER}/index.html`, Buffer.from(page));
}
