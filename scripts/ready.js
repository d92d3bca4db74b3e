/**
 * Loaded before every command of package.json: says in one sentence what is missing to run it. In
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

// A command starts a quarter faster: the operations' schemas are many modules.
module.enableCompileCache(fileURLToPath(new URL("../node_modules/.cache/node", import.meta.url)));

/** @param {string} sentence */
function refuse(sentence) {
  console.error(sentence);
  process.exit(1);
}
