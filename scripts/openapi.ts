/**
 * Keeps openapi.json, the OpenAPI document as the Worker serves it, but for its own address.
 *
 *     npm run openapi          writes it
 *     npm run check:openapi    fails when it is not what the code says, or breaks its own version
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { buildDocument } from "../src/document/document.ts";
import { ROOT } from "./checkout.ts";
import { readCommitted } from "./openapi-history.ts";
import { findFaults } from "./openapi-release.ts";
import type { Part } from "./openapi-schemas.ts";

const FILE = "openapi.json";

const { values } = parseArgs({ options: { check: { type: "boolean", default: false } } });
const text = `${JSON.stringify(await buildDocument(), null, 2)}\n`;
const document: Part = JSON.parse(text);
if (values.check) check();
else writeFileSync(join(ROOT, FILE), text);

function check(): void {
  const faults = findFaults(document, readCommitted(ROOT, FILE), readText("CHANGELOG.md"));
  if (readText(FILE) !== text)
    faults.unshift(`${FILE} is not what the code says: run \`npm run openapi\` and commit it`);
  for (const fault of faults) console.error(fault);
  if (faults.length > 0) process.exitCode = 1;
}

/** The text of a file of the checkout; empty when there is none. */
function readText(file: string): string {
  try {
    return readFileSync(join(ROOT, file), "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return "";
    throw error;
  }
}
