/**
 * Builds the files to serve into `dist/assets`: the OpenAPI document, the docs generated from it,
 * the portal, and, for users without this checkout, the example client and the receiver checker as
 * a single file for Node. wrangler runs it before it builds the Worker.
 *
 *     node scripts/assets.ts
 *
 * With the environment variable `ASSETS_ARE_BUILT`, it leaves files that are there as they are: the tests build
 * dozens of Workers, and the assets once.
 */
import { existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { ROOT } from "./shared/checkout.ts";

const ASSETS = join(ROOT, "dist/assets");

if (process.env.ASSETS_ARE_BUILT && existsSync(ASSETS)) process.exit();

// Loaded now, so that the line above costs no time.
const { build } = await import("esbuild");
const { buildSite } = await import("../site/build.ts");
const { buildPortal } = await import("../site/portal.ts");

/** The content of each file by its path in the assets folder. */
const wanted = new Map([...(await buildSite(ROOT)), ...(await buildPortal(ROOT))]);
wanted.set("docs/check-receiver.mjs", await bundleChecker());

// Up-to-date files stay untouched, because a server may be reading them.
for (const [path, content] of wanted) {
  const target = join(ASSETS, path);
  if (existsSync(target) && readFileSync(target).equals(content)) continue;
  mkdirSync(dirname(target), { recursive: true });
  writeFileSync(target, content);
}
for (const file of filesIn(ASSETS)) if (!wanted.has(file)) rmSync(join(ASSETS, file));

async function bundleChecker(): Promise<Buffer> {
  const { outputFiles } = await build({
    entryPoints: [join(ROOT, "scripts/check-receiver/check-receiver.ts")],
    bundle: true,
    write: false,
    platform: "node",
    format: "esm",
    target: "node20",
  });
  return Buffer.from(outputFiles[0]?.contents ?? []);
}

/** Lists the files in `folder` and below by relative path. */
function filesIn(folder: string): string[] {
  return readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(folder.length + 1));
}
