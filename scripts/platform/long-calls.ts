import type { Redelivered } from "../../src/history/views.ts";
import type {
  PlatformInput,
  PlatformMethod,
  PlatformOutput,
} from "../../src/platform/operations.ts";
import { openSteps } from "../shared/command.ts";
import type { PlatformClient } from "../shared/platform-client.ts";
import { printSlowly } from "../shared/terminal.ts";

/** The methods whose pages can be written one item per line, with the ends of example commands. */
export const PRINTED = {
  exportWorkspace: `'{ "workspaceId": "wks_…" }' --ndjson > workspace.ndjson`,
  listAuditTrail: "--ndjson > audit-trail.ndjson",
  listWorkspaces: "--ndjson > workspaces.ndjson",
};
type PrintedMethod = keyof typeof PRINTED;

/** Whether the pages of a method can be written one item per line. */
export function printsLines(method: string): method is PrintedMethod {
  return Object.hasOwn(PRINTED, method);
}

/**
 * Writes all pages of a list to standard output, one item per line (NDJSON).
 *
 * @throws Error that says how to continue.
 */
export async function printLines<M extends PrintedMethod>(
  platform: PlatformClient,
  method: M,
  input: PlatformInput<M>,
): Promise<void> {
  const step = openSteps();
  // If the reader of a pipe stops, `printSlowly` fails, which is enough.
  process.stdout.on("error", () => {});
  let { cursor = null } = input;
  let count = 0;
  try {
    do {
      const page = await platform.call(method, { ...input, cursor } as PlatformInput<M>);
      const items: readonly unknown[] = page.items;
      if (items.length > 0) await printSlowly(items.map((item) => JSON.stringify(item)).join("\n"));
      cursor = page.nextCursor;
      count += items.length;
      step(`${count.toLocaleString("en-US")} items`, 5_000);
    } while (cursor !== null);
  } catch (error) {
    if (cursor === null) throw error;
    throw toContinue(error, "The output so far is complete; continue with", { ...input, cursor });
  } finally {
    step("");
  }
}

/** Adds to an error the input with which the same command continues. */
function toContinue(error: unknown, hint: string, input: object): Error {
  return new Error(`${(error as Error).message}\n${hint} '${JSON.stringify(input)}'`);
}

/** The methods of which all pages are read. Each is the basis of a decision, for which one page of a workspace is too few. */
type WholeMethod = "findLeads" | "listApiKeys";

/** Whether all pages of a method are read. */
export function isReadWhole(method: string): method is WholeMethod {
  return method === "findLeads" || method === "listApiKeys";
}

/** Reads a list, in as many calls as it takes. @returns all pages as one. */
export async function readAllPages<M extends WholeMethod>(
  platform: PlatformClient,
  method: M,
  input: PlatformInput<M>,
): Promise<PlatformOutput<M>> {
  const step = openSteps();
  let { cursor = null } = input;
  const items: unknown[] = [];
  const unreadable: string[] = [];
  try {
    for (let calls = 1; ; calls++) {
      const page = await platform.call(method, { ...input, cursor } as PlatformInput<M>);
      items.push(...page.items);
      if ("unreadable" in page) unreadable.push(...page.unreadable);
      cursor = page.nextCursor;
      if (cursor === null) return { ...page, items, ...("unreadable" in page && { unreadable }) };
      step(`${items.length.toLocaleString("en-US")} found; call ${calls + 1}`, 5_000);
    }
  } finally {
    step("");
  }
}

/** The part of a list's output that shows whether a page is empty, and whether another one follows it. */
interface MaybePage {
  items?: readonly unknown[];
  nextCursor?: string | null;
}

/**
 * Calls a method. If it lists, skips empty pages: a filtered page is empty if nothing that it has examined matches, and
 * later pages may still have items.
 */
export async function callPastEmptyPages<M extends PlatformMethod>(
  platform: PlatformClient,
  method: M,
  input: PlatformInput<M>,
): Promise<PlatformOutput<M>> {
  const step = openSteps();
  let asked = input;
  try {
    for (let calls = 1; ; calls++) {
      const output = await platform.call(method, asked);
      const { items, nextCursor } = output as MaybePage;
      if (items?.length !== 0 || nextCursor == null) return output;
      asked = { ...input, cursor: nextCursor };
      step(`nothing found so far; call ${calls + 1}`, 5_000);
    }
  } catch (error) {
    if (asked === input) throw error;
    throw toContinue(error, "Continue with", asked);
  } finally {
    step("");
  }
}

/**
 * Re-encrypts the data keys of all workspaces, in as many calls as it takes. If it is interrupted, run the command again.
 * It ends with a call that re-encrypts none as well, because the next one would do the same.
 */
export async function resealAll(
  platform: PlatformClient,
  input: PlatformInput<"resealSecrets">,
): Promise<PlatformOutput<"resealSecrets">> {
  const step = openSteps();
  let resealed = 0;
  try {
    for (;;) {
      const output = await platform.call("resealSecrets", input);
      resealed += output.resealed;
      if (output.remaining === 0 || output.resealed === 0) return { ...output, resealed };
      step(`${output.remaining.toLocaleString("en-US")} data keys remain`, 5_000);
    }
  } finally {
    step("");
  }
}

/** The methods that are called until they are done. */
export type DoneMethod = "eraseWorkspace" | "removeAutomations";

/** Whether a method is called until it is done. */
export function isUntilDone(method: string): method is DoneMethod {
  return method === "eraseWorkspace" || method === "removeAutomations";
}

/** Erases or removes, in as many calls as it takes. If it is interrupted, run the command again. */
export async function callUntilDone<M extends DoneMethod>(
  platform: PlatformClient,
  method: M,
  input: PlatformInput<M>,
): Promise<PlatformOutput<DoneMethod>> {
  const step = openSteps();
  try {
    for (let calls = 1; ; calls++) {
      const output = await platform.call(method, input);
      if (output.done) return output;
      step(`call ${calls + 1}`, 5_000);
    }
  } finally {
    step("");
  }
}

/**
 * Redelivers a range, or enables a subscription with what it has missed, in as many calls as it takes.
 *
 * @throws Error that says how to continue.
 */
export async function redeliverAll<M extends "redeliver" | "enableWebhook">(
  platform: PlatformClient,
  method: M,
  input: PlatformInput<M>,
): Promise<PlatformOutput<M>> {
  const step = openSteps();
  let { cursor = null } = input;
  let count = 0;
  let output: Redelivered;
  try {
    do {
      output = await platform.call(method, { ...input, cursor } as PlatformInput<M>);
      cursor = output.nextCursor;
      count += output.count;
      step(`${count.toLocaleString("en-US")} events are about to be sent`, 5_000);
    } while (cursor !== null);
  } catch (error) {
    if (cursor === null) throw error;
    throw toContinue(error, "Continue with", { ...input, cursor });
  } finally {
    step("");
  }
  return { ...output, count } as PlatformOutput<M>;
}
