/**
 * Writes the OpenAPI document, as the built Worker serves it, to a file.
 *
 *     node scripts/openapi.ts dist/openapi.json
 */
import { writeFileSync } from "node:fs";
import { buildWorker, startRuntime } from "./runtime.ts";

const [file] = process.argv.slice(2);
if (!file) throw new Error("name the file to write");
buildWorker();
const runtime = await startRuntime();
const answer = await fetch(new URL("/openapi.json", runtime.url));
writeFileSync(file, `${JSON.stringify(await answer.json(), null, 2)}\n`);
await runtime.stop();
