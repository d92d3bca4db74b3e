/**
 * Checks before every command of package.json whether it can run, and says in one sentence what is missing. It is in
 * JavaScript, because an old Node cannot read TypeScript.
 */
import { existsSync } from "node:fs";
import module from "node:module";
import { fileURLToPath } from "node:url";

/** The oldest Node that can run `scripts/`. */
const NODE_MIN = 24;

if (!existsSync(new URL("../node_modules/wrangler/package.json", import.meta.url)))
  refuse("The dependencies are not installed: run `npm ci` first.");
if (Number.parseInt(process.versions.node, 10) < NODE_MIN)
  refuse(
    `This is Node ${process.versions.node}, and ${NODE_MIN} or later is needed: \`npm ci\` brings one along for Linux and macOS, and \`npm run\` finds it.`,
  );

// The cache makes commands start a quarter faster, because the schemas of operations are in many modules.
module.enableCompileCache(fileURLToPath(new URL("../node_modules/.cache/node", import.meta.url)));

// Resolving once makes that three times as fast again: otherwise, Node parses the package.json of drizzle-orm, 180 KB,
// for each import of it and within it.
const resolved = new Map();
module.registerHooks({
  resolve(specifier, context, next) {
    const { parentURL = "", conditions } = context;
    if (/^\.\.?\/.*\.js$/.test(specifier) && parentURL.includes("/node_modules/drizzle-orm/"))
      return { url: new URL(specifier, parentURL).href, format: "module", shortCircuit: true };
    if (!/^drizzle-orm(\/|$)/.test(specifier)) return next(specifier, context);
    const key = [specifier, ...conditions].join();
    const known = resolved.get(key) ?? { ...next(specifier, context), shortCircuit: true };
    resolved.set(key, known);
    return known;
  },
});

/** @param {string} sentence */
function refuse(sentence) {
  console.error(sentence);
  process.exit(1);
}
