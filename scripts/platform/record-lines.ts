import { createReadStream, statSync } from "node:fs";
import { createInterface } from "node:readline";
import type { Readable } from "node:stream";
import { RECORDS_MAX } from "../../src/contract/limits.ts";
import { type Recorded, readInput } from "../../src/contract/platform.ts";
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

/** A record, and the line of the input that it stands on. */
interface Line {
  number: number;
  record: unknown;
}

/**
 * Records what stands in a file (`-`: in standard input), one record a line (NDJSON), in calls of a
 * hundred, one after the other.
 *
 * @throws Error that names the first line that is wrong, and says which lines are recorded. Of the
 *   hundred that holds it, and of those after it, nothing is.
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
    if (lastLine === 0) throw error;
    throw new Error(`${(error as Error).message}
The lines up to ${lastLine} are recorded (${done.created.toLocaleString("en-US")} new), and none after them. Run it again: what is recorded stays as it is.`);
  } finally {
    meter.end(text());
  }
  return done;
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
    throw new Error(`line ${number}: not JSON: ${(error as Error).message}`);
  }
  const read = { number, record };
  try {
    readInput(method, toInput(method, workspaceId, [read]));
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

/** The same error, with the number of a line for the record's place in the call, such as `leads[3]`. */
function atLine(error: Error, method: LinesMethod, lines: Line[]): Error {
  const place = new RegExp(`^(?:${method}: )?${FIELDS[method]}\\[(\\d+)\\][.:] ?`);
  const [start = "", index] = place.exec(error.message) ?? [];
  const line = index === undefined ? null : lines[Number(index)];
  return line ? new Error(`line ${line.number}: ${error.message.slice(start.length)}`) : error;
}
