/**
 * Keeps openapi.json, the OpenAPI document as the built Worker serves it.
 *
 *     npm run openapi          writes it
 *     npm run check:openapi    fails when it is not what the code says, or breaks its own version
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { ROOT } from "./checkout.ts";
import { fail, readArguments } from "./command.ts";
import { readCommitted } from "./openapi-history.ts";
import { findFaults } from "./openapi-release.ts";
import type { Part } from "./openapi-schemas.ts";
import { buildWorker, startRuntime } from "./runtime.ts";

const FILE = "openapi.json";

const USAGE = `npm run openapi -- [--check]

Writes ${FILE}, the OpenAPI document as the built Worker serves it.

  --check  writes nothing, and fails when the file is not what the code says, or breaks clients of a
           document that was ever committed with the same version
`;

const { values } = readArguments(USAGE, { check: { type: "boolean", default: false } });
try {
  const document = await readServed();
  const text = `${JSON.stringify(document, null, 2)}\n`;
  if (values.check) check(document, text);
  else {
    writeFileSync(join(ROOT, FILE), text);
    console.log(`${FILE} is written.`);
  }
} catch (error) {
  fail(error);
}

async function readServed(): Promise<Part> {
  buildWorker();
  const runtime = await startRuntime();
  const answer = await fetch(new URL(FILE, runtime.url));
  const document = (await answer.json()) as Part;
  await runtime.stop();
  return document;
}

function check(document: Part, text: string): void {
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
