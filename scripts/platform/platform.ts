/**
 * Calls a method of the Platform door and shows its answer: as JSON, or as a table in a terminal.
 *
 *     npm run platform -- createWorkspace '{ "name": "Agence Lumière" }'
 *     npm run platform -- createWorkspace --help
 */
import { PLATFORM_INPUTS, type PlatformMethod, readInput } from "../../src/contract/platform.ts";
import { fail, readArguments } from "../shared/command.ts";
import { openPlatformDoor } from "../shared/platform-door.ts";
import { toTable } from "../shared/table.ts";
import { describeMethod, describeMethods } from "./help.ts";
import { eraseAll, exportLines } from "./long-calls.ts";

try {
  const answer = await run();
  if (answer !== null) console.log(answer);
} catch (error) {
  fail(error);
}

/** What is to be printed; null when it has been. */
async function run(): Promise<string | null> {
  const { values, positionals } = readArguments(
    describeMethods(),
    {
      json: { type: "boolean", default: false },
      ndjson: { type: "boolean", default: false },
      remote: { type: "boolean", default: false },
    },
    { allowPositionals: true },
  );
  const [method, json = "{}", ...rest] = positionals;
  if (method === undefined) return describeMethods();
  if (!isMethod(method))
    throw new Error(`${method}: no such method; npm run platform -- --help lists them`);
  if ((values as { help?: boolean }).help) return describeMethod(method);
  if (rest.length > 0) throw new Error("one method and one JSON text, in quotes, are expected");
  const input = parse(json);
  // The server would say the same, later.
  readInput(method, input);
  await using door = await openPlatformDoor({ remote: values.remote });
  if (values.ndjson) {
    if (method !== "exportWorkspace") throw new Error("--ndjson is for exportWorkspace");
    await exportLines(door, input);
    return null;
  }
  const answer =
    method === "eraseWorkspace" ? await eraseAll(door, input) : await door.call(method, input);
  return process.stdout.isTTY && !values.json ? toTable(answer) : JSON.stringify(answer, null, 2);
}

function isMethod(name: string): name is PlatformMethod {
  return Object.hasOwn(PLATFORM_INPUTS, name);
}

// biome-ignore lint/suspicious/noExplicitAny: whatever it holds, the schema of the method judges it
function parse(text: string): any {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Error(`the input is not JSON: ${(error as Error).message}`);
  }
}
