import { accessSync, constants, statSync } from "node:fs";
import { userInfo } from "node:os";
import { Readable } from "node:stream";
import { parseCall } from "../../src/platform/invoke.ts";
import { isMethod, OPERATIONS, type PlatformMethod } from "../../src/platform/operations.ts";
import { parseArguments } from "../shared/command.ts";
import { nearest } from "../shared/nearest.ts";
import { openPlatform, type PlatformClient, SELECTION } from "../shared/platform-client.ts";
import { toTable } from "../shared/table.ts";
import { describeMethod, describeMethods, toCommand } from "./help.ts";
import { openInput, readLines } from "./input.ts";
import {
  callPastEmptyPages,
  callUntilDone,
  isReadWhole,
  isUntilDone,
  PRINTED,
  printLines,
  printsLines,
  readAllPages,
  redeliverAll,
  resealAll,
} from "./long-calls.ts";
import { recordLines, takesLines } from "./record-lines.ts";

/**
 * Calls the method that the arguments of `npm run platform` name.
 *
 * @param openSelected opens the Platform API that the arguments select.
 * @returns what to print; null if it has been printed already.
 * @throws Error that says what is wrong, in words for the user.
 */
export async function callMethod(
  args: string[],
  openSelected = openPlatform,
): Promise<string | null> {
  const { values, positionals } = parseArguments(
    describeMethods,
    {
      json: { type: "boolean", default: false },
      ndjson: { type: "boolean", default: false },
      workspace: { type: "string" },
      actor: { type: "string" },
      ...SELECTION,
    },
    { allowPositionals: true, args },
  );
  const [method, given = "{}", ...rest] = positionals;
  if (method === undefined) return describeMethods();
  if (!isMethod(method)) throw new Error(`${method}: no such method. ${suggestMethod(method)}`);
  if ((values as { help?: boolean }).help) return describeMethod(method, OPERATIONS[method]);
  if (rest.length > 0) throw new Error("expected one method and one JSON text, in quotes");
  const format = (answer: object) =>
    process.stdout.isTTY && !values.json
      ? toTable(answer, process.stdout.columns)
      : JSON.stringify(answer, null, 2);
  const { ndjson, workspace, remote, env, actor = userInfo().username } = values;
  const open = async () => callingAs(actor, await openSelected({ remote, env }));
  if (ndjson && takesLines(method)) {
    if (workspace === undefined) throw new Error("--ndjson needs --workspace ID");
    if (positionals.length < 2) throw new Error("--ndjson needs a file, or -");
    expectReadable(given);
    await using platform = await open();
    return format(await recordLines(platform, method, workspace, given));
  }
  if (ndjson && !printsLines(method))
    throw new Error(
      `--ndjson is for ${Object.keys(PRINTED).join(", ")} and methods that record, not for ${method}`,
    );
  if (workspace !== undefined)
    throw new Error("--workspace is for methods that record, with --ndjson");
  const input = parseText(method, await readText(given));
  // The server would report the same, but later.
  try {
    parseCall(OPERATIONS[method], input, method);
  } catch (error) {
    const [example = {}] = OPERATIONS[method].examples;
    const meant = [(error as Error).message, ...suggestFields(method, input)].join("; ");
    throw new Error(`${meant}\n\n  ${toCommand(method, example)}`);
  }
  await using platform = await open();
  if (ndjson && printsLines(method)) {
    await printLines(platform, method, input);
    return null;
  }
  if (isUntilDone(method)) return format(await callUntilDone(platform, method, input));
  if (method === "redeliver" || method === "enableWebhook")
    return format(await redeliverAll(platform, method, input));
  if (isReadWhole(method)) return format(await readAllPages(platform, method, input));
  if (method === "resealSecrets") return format(await resealAll(platform, input));
  return format(await callPastEmptyPages(platform, method, input));
}

/** Names the method that a mistyped one stands for, with an example of it. */
function suggestMethod(typed: string): string {
  const name = nearest(typed, Object.keys(OPERATIONS));
  if (name === null || !isMethod(name)) return "npm run platform -- --help lists them.";
  const [example = {}] = OPERATIONS[name].examples;
  return `Did you mean ${name}?\n\n  ${toCommand(name, example)}`;
}

/** Names the fields that mistyped ones of an input stand for. */
function suggestFields(method: PlatformMethod, input: object): string[] {
  const names = Object.keys(OPERATIONS[method].input.shape);
  return Object.keys(input).flatMap((typed) => {
    const name = names.includes(typed) ? null : nearest(typed, names);
    return name ? [`did you mean ${name} by ${typed}?`] : [];
  });
}

/** The same platform, with `actor` added to each input that has none. */
function callingAs(actor: string, platform: PlatformClient): PlatformClient {
  return {
    call: (method, input) => platform.call(method, { actor, ...input }),
    [Symbol.asyncDispose]: () => platform[Symbol.asyncDispose](),
  };
}

/** Reads the input: JSON as given, or from a file, or, for `-`, from standard input. */
async function readText(given: string): Promise<string> {
  if (/^\s*[{[]/.test(given)) return given;
  expectReadable(given);
  const open = await openInput(given);
  return (await Readable.from(readLines(open())).toArray()).join("\n");
}

/** @throws Error in one sentence, unless `file` is a readable file, or `-`. */
function expectReadable(file: string): void {
  try {
    if (file === "-") return;
    accessSync(file, constants.R_OK);
    // As reading it would fail.
    if (statSync(file).isDirectory()) throw Object.assign(new Error(), { code: "EISDIR" });
  } catch (error) {
    throw new Error(`${file} cannot be read (${(error as NodeJS.ErrnoException).code})`);
  }
}

// biome-ignore lint/suspicious/noExplicitAny: the schema of the method checks it
function parseText(method: string, text: string): any {
  try {
    return JSON.parse(text);
  } catch (error) {
    if (takesLines(method) && isLines(text))
      throw new Error(
        "the input has one JSON text per line: use --ndjson --workspace ID to record them",
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
