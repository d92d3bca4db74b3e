import { createReadStream, statSync } from "node:fs";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { RECORDS_MAX } from "../../src/contract/limits.ts";
import { parseInput, type Recorded } from "../../src/contract/platform.ts";
import type { PlatformDoor } from "../shared/platform-door.ts";
import { openMeter } from "./meter.ts";

/** The methods that take many records, and the field of their input that holds them. */
const FIELDS = {
  recordAutomations: "automations",
  recordLeads: "leads",
  recordRuns: "runs",
} as const;

export type LinesMethod = keyof typeof FIELDS;

export function takesLines(method: string): method is LinesMethod {
  return Object.hasOwn(FIELDS, method);
}

/** The field of a method's input that holds its records. */
export function recordsField(method: LinesMethod): string {
  return FIELDS[method];
}

/** A record, and the line of the input that it stands on. */
interface Line {
  number: number;
  record: unknown;
}

/** A line is wrong: nothing of the call that it belongs to is recorded. */
class LineError extends Error {
  readonly number: number;

  constructor(number: number, fault: string) {
    super(`line ${number}: ${fault}`);
    this.number = number;
  }
}

/**
 * Records what stands in a file (`-`: in standard input), one record a line (NDJSON), in calls of a
 * hundred, one after the other.
 *
 * @throws Error that names the first line that is wrong, and says which lines are recorded and how to go
 *   on. Of the hundred that holds the wrong line, and of those after it, nothing is.
 */
export async function recordLines(
  door: PlatformDoor,
  method: LinesMethod,
  workspaceId: string,
  file: string,
): Promise<{ recorded: number; created: number }> {
  const done = { recorded: 0, created: 0 };
  const text = () => `${done.recorded.toLocaleString("en-US")} ${FIELDS[method]} recorded`;
  const meter = openMeter(sizeOf(file), text());
  let [bytes, lastLine] = [0, 0];
  let lines: Line[] = [];
  const send = async () => {
    if (lines.length === 0) return;
    const { created } = await call(door, method, workspaceId, lines);
    done.recorded += lines.length;
    done.created += created;
    lastLine = lines.at(-1)?.number ?? 0;
    lines = [];
    meter.show(bytes, text());
  };
  try {
    let number = 0;
    for await (const line of createInterface({ input: open(file), crlfDelay: Infinity })) {
      number++;
      bytes += Buffer.byteLength(line) + 1;
      if (line.trim() === "") continue;
      lines.push(readLine(method, workspaceId, line, number));
      if (lines.length === RECORDS_MAX) await send();
    }
    await send();
  } catch (error) {
    throw new Error(
      `${(error as Error).message}\n${standing(error as Error, method, lastLine, done)}`,
    );
  } finally {
    meter.end(text());
  }
  return done;
}

/** What is recorded when an error ends it, and how to go on. */
function standing(
  error: Error,
  method: LinesMethod,
  lastLine: number,
  { created }: { created: number },
): string {
  const stays = "what is recorded stays as it is.";
  const recorded = `Lines 1 to ${lastLine} are recorded (${created.toLocaleString("en-US")} new)`;
  if (error instanceof LineError)
    return lastLine === 0
      ? `Nothing is recorded. Mend line ${error.number} and run it again.`
      : `${recorded}, and none after them. Mend line ${error.number} and run it again: ${stays}`;
  // What the door refuses is not recorded; whether a call was that broke off, nobody knows.
  const isRefused = error.message.startsWith(`${method}: `);
  if (lastLine === 0 && isRefused) return "Nothing is recorded.";
  if (isRefused) return `${recorded}, and none after them.`;
  const after =
    lastLine === 0 ? "Some lines may be recorded" : `${recorded}; some after them may be`;
  return `${after}. Run it again: ${stays}`;
}

/** The size of a file in bytes; null of what has none, such as a pipe. */
function sizeOf(file: string): number | null {
  const found = file === "-" ? null : statSync(file);
  return found?.isFile() ? found.size : null;
}

function open(file: string): Readable {
  return file === "-" ? process.stdin : createReadStream(file);
}

/** @throws Error that names the line: the server would say the same, without its number. */
function readLine(method: LinesMethod, workspaceId: string, line: string, number: number): Line {
  let record: unknown;
  try {
    record = JSON.parse(line);
  } catch (error) {
    throw new LineError(number, `not JSON: ${inOneLine((error as Error).message)}`);
  }
  const read = { number, record };
  try {
    parseInput(method, toInput(method, workspaceId, [read]));
  } catch (error) {
    throw atLine(error as Error, method, [read]);
  }
  return read;
}

async function call(
  door: PlatformDoor,
  method: LinesMethod,
  workspaceId: string,
  lines: Line[],
): Promise<Recorded> {
  try {
    return await door.call(method, toInput(method, workspaceId, lines) as never);
  } catch (error) {
    throw atLine(error as Error, method, lines);
  }
}

function toInput(method: LinesMethod, workspaceId: string, lines: Line[]) {
  return { workspaceId, [FIELDS[method]]: lines.map(({ record }) => record) };
}

/** The parser's message of a text of one line: `(line 1 column 5)` would contradict the file's line. */
function inOneLine(message: string): string {
  return message.replace(/ at position \d+ \(line 1 column (\d+)\)/, " at column $1");
}

/** The same error, with the number of a line for the record's place in the call, such as `leads[3]`. */
function atLine(error: Error, method: LinesMethod, lines: Line[]): Error {
  const place = new RegExp(`^(?:${method}: )?${FIELDS[method]}\\[(\\d+)\\](?=[.:])`);
  const [start = "", index] = place.exec(error.message) ?? [];
  const line = index === undefined ? null : lines[Number(index)];
  if (!line) return error;
  const fault = error.message.slice(start.length).replace(/^(\.|: )/, "");
  return new LineError(
    line.number,
    fault.replace(new RegExp(`${FIELDS[method]}\\[${index}\\](\\.|: )`, "g"), ""),
  );
}
