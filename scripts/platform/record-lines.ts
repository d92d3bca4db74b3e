import { parseInput } from "../../src/contract/input.ts";
import { RECORDS_MAX } from "../../src/contract/limits.ts";
import { OPERATIONS, type PlatformOutput } from "../../src/platform/operations.ts";
import { openSteps } from "../shared/command.ts";
import type { PlatformClient } from "../shared/platform-client.ts";
import { LineError, openInput, readLines } from "./input.ts";

/** The methods that take many records, and the input field that contains them. */
export const FIELDS = {
  recordAutomations: "automations",
  recordLeads: "leads",
  recordRuns: "runs",
} as const;

export type LinesMethod = keyof typeof FIELDS;

export function takesLines(method: string): method is LinesMethod {
  return Object.hasOwn(FIELDS, method);
}

/** A record and its line number. */
interface Line {
  number: number;
  record: unknown;
}

/**
 * Records the lines of a file, or of standard input (`-`), one record per line (NDJSON), a hundred per
 * call, one call after another.
 *
 * @throws Error that names the first invalid line, which lines are recorded, and how to continue.
 *   Nothing is recorded of the hundred with the invalid line, or after it. If a line is not UTF-8, nothing is recorded
 *   at all, because the encoding of the whole file is probably wrong.
 */
export async function recordLines(
  platform: PlatformClient,
  method: LinesMethod,
  workspaceId: string,
  file: string,
): Promise<{ recorded: number; created: number }> {
  const done = { recorded: 0, created: 0 };
  const step = openSteps();
  let lastLine = 0;
  let lines: Line[] = [];
  const send = async () => {
    if (lines.length === 0) return;
    const { created } = await call(platform, method, workspaceId, lines);
    done.recorded += lines.length;
    done.created += created;
    lastLine = lines.at(-1)?.number ?? 0;
    lines = [];
    step(`${done.recorded.toLocaleString("en-US")} ${FIELDS[method]} recorded`, 5_000);
  };
  try {
    const open = await openInput(file);
    for await (const _ of readLines(open()));
    let number = 0;
    for await (const line of readLines(open())) {
      number++;
      if (line.trim() === "") continue;
      lines.push(parseLine(method, workspaceId, line, number));
      if (lines.length === RECORDS_MAX) await send();
    }
    await send();
  } catch (error) {
    throw new Error(
      `${(error as Error).message}\n${describeProgress(error as Error, method, lastLine, done)}`,
    );
  } finally {
    step("");
  }
  return done;
}

/** Describes what was recorded before an error, and how to continue. */
function describeProgress(
  error: Error,
  method: LinesMethod,
  lastLine: number,
  { created }: { created: number },
): string {
  const advice = "recorded lines stay unchanged.";
  const recorded = `Lines 1 to ${lastLine} are recorded (${created.toLocaleString("en-US")} new)`;
  if (error instanceof LineError)
    return lastLine === 0
      ? `Nothing is recorded. Fix line ${error.number} and run it again.`
      : `${recorded}, and no later lines. Fix line ${error.number} and run it again: ${advice}`;
  // A rejected call records nothing. A call that was cut off may have recorded something.
  const isRefused = error.message.startsWith(`${method}: `);
  if (lastLine === 0 && isRefused) return "Nothing is recorded.";
  if (isRefused) return `${recorded}, and no later lines.`;
  const after = lastLine === 0 ? "Some lines may be recorded" : `${recorded}; later lines may be`;
  return `${after}. Run it again: ${advice}`;
}

/** Parses a line. @throws LineError if it is invalid; the server would not name the line. */
function parseLine(method: LinesMethod, workspaceId: string, line: string, number: number): Line {
  let record: unknown;
  try {
    record = JSON.parse(line);
  } catch (error) {
    throw new LineError(number, `not JSON: ${withoutLine((error as Error).message)}`);
  }
  const parsed = { number, record };
  try {
    parseInput(OPERATIONS[method].input, toInput(method, workspaceId, [parsed]), method);
  } catch (error) {
    throw atLine(error as Error, method, [parsed]);
  }
  return parsed;
}

async function call(
  platform: PlatformClient,
  method: LinesMethod,
  workspaceId: string,
  lines: Line[],
): Promise<PlatformOutput<LinesMethod>> {
  try {
    return await platform.call(method, toInput(method, workspaceId, lines) as never);
  } catch (error) {
    throw atLine(error as Error, method, lines);
  }
}

function toInput(method: LinesMethod, workspaceId: string, lines: Line[]) {
  return { workspaceId, [FIELDS[method]]: lines.map(({ record }) => record) };
}

/** Drops the parser's `(line 1 column 5)`, which would contradict the line number in the file. */
function withoutLine(message: string): string {
  return message.replace(/ at position \d+ \(line 1 column (\d+)\)/, " at column $1");
}

/** Names the line instead of the record's index in the call, such as `leads[3]`. */
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
