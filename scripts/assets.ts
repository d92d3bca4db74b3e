/**
 * Puts together the static files of the docs page, in `dist/assets`: those of `site/`, and the
 * reference that renders the OpenAPI document. wrangler runs it before it builds the Worker.
 *
 *     node scripts/assets.ts
 */
import { copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { ROOT } from "./checkout.ts";

const ASSETS = join(ROOT, "dist/assets");
const SITE = join(ROOT, "site");
const SCALAR = join(ROOT, "node_modules/@scalar/api-reference/dist/browser");

const wanted = new Map<string, string>();
for (const file of filesIn(SITE)) wanted.set(join(ASSETS, file), join(SITE, file));
for (const file of filesIn(SCALAR))
  if (file === "standalone.esm.js" || (file.startsWith("chunks/") && file.endsWith(".js")))
    wanted.set(join(ASSETS, "docs/scalar", file), join(SCALAR, file));

// What is right stays untouched: a server may be reading it.
for (const [target, source] of wanted) {
  if (existsSync(target) && readFileSync(target).equals(readFileSync(source))) continue;
  mkdirSync(dirname(target), { recursive: true });
  copyFileSync(source, target);
}
for (const file of filesIn(ASSETS)) if (!wanted.has(join(ASSETS, file))) rmSync(join(ASSETS, file));

/** The files in `folder` and below, by their paths in it. */
function filesIn(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(folder.length + 1));
}
