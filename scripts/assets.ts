/**
 * Puts together the static files of the docs page, in `dist/assets`: those of `site/`, the reference
 * that renders the OpenAPI document, and the checker of receivers as one file that Node runs, for
 * those who have not this checkout. wrangler runs it before it builds the Worker.
 *
 *     node scripts/assets.ts
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { buildSync } from "esbuild";
import { ROOT } from "./checkout.ts";

const ASSETS = join(ROOT, "dist/assets");
const SITE = join(ROOT, "site");
const SCALAR = join(ROOT, "node_modules/@scalar/api-reference/dist/browser");

/** The content of each file, by its path in the folder of assets. */
const wanted = new Map<string, Uint8Array>();
for (const file of filesIn(SITE)) wanted.set(file, readFileSync(join(SITE, file)));
for (const file of filesIn(SCALAR))
  if (file === "standalone.esm.js" || (file.startsWith("chunks/") && file.endsWith(".js")))
    wanted.set(join("docs/scalar", file), readFileSync(join(SCALAR, file)));
wanted.set("docs/check-receiver.mjs", bundleChecker());

// What is right stays untouched: a server may be reading it.
for (const [file, content] of wanted) {
  const target = join(ASSETS, file);
  if (existsSync(target) && readFileSync(target).equals(content)) continue;
  mkdirSync(dirname(target), { recursive: true });
  writeFileSync(target, content);
}
for (const file of filesIn(ASSETS)) if (!wanted.has(file)) rmSync(join(ASSETS, file));

function bundleChecker(): Uint8Array {
  const { outputFiles } = buildSync({
    entryPoints: [join(ROOT, "scripts/check-receiver.ts")],
    bundle: true,
    write: false,
    platform: "node",
    format: "esm",
    target: "node20",
  });
  return outputFiles[0]?.contents ?? new Uint8Array();
}

/** The files in `folder` and below, by their paths in it. */
function filesIn(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(folder.length + 1));
}
