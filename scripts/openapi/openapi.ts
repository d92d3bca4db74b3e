/**
 * Maintains openapi.json, the OpenAPI document as the Worker serves it, except for its own address, and the parts of
 * the guides that are written from the code.
 *
 *     npm run openapi          writes them
 *     npm run check:openapi    fails if the document does not match the code, or does more than add to its version
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { FOLDER, fillParts, GUIDES } from "../../site/guides.ts";
import { buildDocument } from "../../src/http/document/document.ts";
import { makeWritable, ROOT } from "../shared/checkout.ts";
import { fail, parseArguments } from "../shared/command.ts";
import { print, printError } from "../shared/terminal.ts";
import type { Part } from "./changes.ts";
import { findFaults, readCommitted } from "./release.ts";

const FILE = "openapi.json";

const USAGE = `npm run openapi -- [--check]

Writes ${FILE}, the OpenAPI document as the Worker serves it, except for its address, and the
parts of ${FOLDER} that are written from the code.

  --check  writes nothing, and fails if the file does not match the code, or if the document does
           more than add to one that was ever committed with the same version
`;

process.on("uncaughtException", fail);
const { values } = parseArguments(USAGE, { check: { type: "boolean", default: false } });
const text = `${JSON.stringify(buildDocument(), null, 2)}\n`;
const document: Part = JSON.parse(text);
if (values.check) check();
else {
  makeWritable(ROOT);
  writeFileSync(join(ROOT, FILE), text);
  for (const [, name] of GUIDES) {
    const guide = join(ROOT, FOLDER, `${name}.md`);
    writeFileSync(guide, fillParts(readFileSync(guide, "utf8"), ROOT));
  }
  print(`${FILE} and the guides are written.`);
}

function check(): void {
  const faults = findFaults(document, readCommitted(ROOT, FILE), readText("CHANGELOG.md"));
  if (readText(FILE) !== text)
    faults.unshift(`${FILE} is not what the code says: run \`npm run openapi\` and commit it`);
  for (const fault of faults) printError(fault);
  if (faults.length > 0) process.exitCode = 1;
}

/** Reads the text of a file of the checkout; empty if there is none. */
function readText(file: string): string {
  try {
    return readFileSync(join(ROOT, file), "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return "";
    throw error;
  }
}
