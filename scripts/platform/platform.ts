/**
 * Calls a method of the Platform door and shows its answer: as JSON, or as a table in a terminal.
 *
 *     npm run platform -- createWorkspace '{ "name": "Agence Lumière" }'
 *     npm run platform -- createWorkspace --help
 */
import { accessSync, constants, readFileSync, statSync } from "node:fs";
import { text } from "node:stream/consumers";
import { PLATFORM_INPUTS, type PlatformMethod, parseInput } from "../../src/contract/platform.ts";
import { fail, parseArguments } from "../shared/command.ts";
import { openPlatformDoor } from "../shared/platform-door.ts";
import { toTable } from "../shared/table.ts";
import { describeMethod, describeMethods } from "./help.ts";
import { eraseAll, exportLines } from "./long-calls.ts";
import { recordLines, takesLines } from "./record-lines.ts";

try {
  const answer = await run();
  if (answer !== null) console.log(answer);
} catch (error) {
  fail(error);
}

/** What is to be printed; null when it has been. */
async function run(): Promise<string | null> {
  const { values, positionals } = parseArguments(
    describeMethods(),
    {
      json: { type: "boolean", default: false },
      ndjson: { type: "boolean", default: false },
      workspace: { type: "string" },
      remote: { type: "boolean", default: false },
    },
    { allowPositionals: true },
  );
  const [method, given = "{}", ...rest] = positionals;
  if (method === undefined) return describeMethods();
  if (!isMethod(method))
    throw new Error(`${method}: no such method; npm run platform -- --help lists them`);
  if ((values as { help?: boolean }).help) return describeMethod(method);
  if (rest.length > 0) throw new Error("one method and one JSON text, in quotes, are expected");
  const print = (answer: object) =>
    process.stdout.isTTY && !values.json ? toTable(answer) : JSON.stringify(answer, null, 2);
  const { ndjson, workspace, remote } = values;
  if (ndjson && takesLines(method)) {
    if (workspace === undefined) throw new Error("--workspace ID is expected with --ndjson");
    if (positionals.length < 2) throw new Error("a file, or -, is expected with --ndjson");
    expectReadable(given);
    await using door = await openPlatformDoor({ remote });
    return print(await recordLines(door, method, workspace, given));
  }
  if (ndjson && method !== "exportWorkspace")
    throw new Error(`--ndjson is for exportWorkspace and methods that record, not for ${method}`);
  if (workspace !== undefined)
    throw new Error("--workspace is for methods that record, with --ndjson");
  const input = parse(method, await readText(given));
  // The server would say the same, later.
  parseInput(method, input);
  await using door = await openPlatformDoor({ remote });
  if (ndjson) {
    await exportLines(door, input);
    return null;
  }
  const answer =
    method === "eraseWorkspace" ? await eraseAll(door, input) : await door.call(method, input);
  return print(answer);
}

function isMethod(name: string): name is PlatformMethod {
  return Object.hasOwn(PLATFORM_INPUTS, name);
}

/** The JSON text that is given: itself, or in a file, or `-`, in standard input. */
async function readText(given: string): Promise<string> {
  if (/^\s*[{[]/.test(given)) return given;
  if (given === "-") return text(process.stdin);
  expectReadable(given);
  return readFileSync(given, "utf8");
}

/** @throws Error in one sentence, unless `file` is one that can be read, or `-`. */
function expectReadable(file: string): void {
  try {
    if (file === "-") return;
    accessSync(file, constants.R_OK);
    // As reading it would say.
    if (statSync(file).isDirectory()) throw Object.assign(new Error(), { code: "EISDIR" });
  } catch (error) {
    throw new Error(`${file} cannot be read (${(error as NodeJS.ErrnoException).code})`);
  }
}

// biome-ignore lint/suspicious/noExplicitAny: whatever it holds, the schema of the method judges it
function parse(method: PlatformMethod, text: string): any {
  try {
    return JSON.parse(text);
  } catch (error) {
    if (takesLines(method) && isLines(text))
      throw new Error(
        "the input is several JSON texts, one a line: --ndjson --workspace ID records them",
      );
    throw new Error(`the input is not JSON: ${(error as Error).message}`);
  }
}

/** Whether the first line of a text is JSON by itself. */
function isLines(text: string): boolean {
  try {
    return typeof JSON.parse(text.trimStart().split("\n", 1)[0] ?? "") === "object";
  } catch {
    return false;
  }
}
