/**
 * Maintains openapi.json, the OpenAPI document as the Worker serves it, except for its own address.
 *
 *     npm run openapi          writes it
 *     npm run check:openapi    fails if it does not match the code, or does more than add to its version
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { buildDocument } from "../../src/http/document/document.ts";
import { makeWritable, ROOT } from "../shared/checkout.ts";
import { fail, parseArguments } from "../shared/command.ts";
import type { Part } from "./changes.ts";
import { findFaults, readCommitted } from "./release.ts";

const FILE = "openapi.json";

const USAGE = `npm run openapi -- [--check]

Writes ${FILE}, the OpenAPI document as the Worker serves it, but for its own address.

  --check  writes nothing, and fails when the file is not what the code says, or does more than add to
           a document that was ever committed with the same version
`;

process.on("uncaughtException", fail);
const { values } = parseArguments(USAGE, { check: { type: "boolean", default: false } });
const text = `${JSON.stringify(buildDocument(), null, 2)}\n`;
if (values.check) check(text);
else {
  makeWritable(ROOT);
  writeFileSync(join(ROOT, FILE), text);
  console.log(`${FILE} is written.`);
}

function check(text: string): void {
  const document: Part = JSON.parse(text);
  const faults = findFaults(document, readCommitted(ROOT, FILE), readText("CHANGELOG.md"));
  if (readText(FILE) !== text)
    faults.unshift(`${FILE} is not what the code says: run \`npm run openapi\` and commit it`);
  for (const fault of faults) console.error(fault);
  if (faults.length > 0) process.exitCode = 1;
}

/** The text of a file of the checkout; empty if there is none. */
function readText(file: string): string {
  try {
    return readFileSync(join(ROOT, file), "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return "";
    throw error;
  }
}
