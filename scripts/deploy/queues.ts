import { print } from "../shared/terminal.ts";
import type { Wrangler } from "../shared/wrangler.ts";

/** How long a queue keeps a message, at most: while its consumer is paused. */
const KEPT_SECONDS = 14 * 24 * 60 * 60;
const KEPT = `--message-retention-period-secs=${KEPT_SECONDS}`;

/** A queue that the configuration names, and whether it exists. */
export interface FoundQueue {
  name: string;
  exists: boolean;
}

/**
 * Looks the queues up.
 *
 * @param jurisdiction where they should be; empty: anywhere.
 * @throws Error if one is in another jurisdiction, or cannot be looked up.
 */
export async function findQueues(
  wrangler: Wrangler,
  names: string[],
  jurisdiction: string,
): Promise<FoundQueue[]> {
  const found: FoundQueue[] = [];
  for (const name of names) {
    const { ok, stdout, complaint } = await wrangler.ask("queues", "info", name);
    if (!ok && !complaint.includes("does not exist"))
      throw new Error(`The queue ${name} cannot be looked up:\n${complaint}`);
    const [, there = ""] = /^Jurisdiction: (\S+)$/m.exec(stdout) ?? [];
    if (ok && there !== jurisdiction)
      throw new Error(
        `The queue ${name} is stored ${placeOf(there)}, not ${placeOf(jurisdiction)}, and cannot be moved: give it a new name in wrangler.toml. Nothing was deployed.`,
      );
    found.push({ name, exists: ok });
  }
  return found;
}

/** A jurisdiction in words. */
export function placeOf(jurisdiction: string): string {
  return jurisdiction === "" ? "in no jurisdiction" : `in the jurisdiction ${jurisdiction}`;
}

/** Creates the missing queues, and lets each keep messages for 14 days. @throws Error if one cannot. */
export async function makeQueues(
  wrangler: Wrangler,
  queues: FoundQueue[],
  jurisdiction: string,
): Promise<void> {
  const where = jurisdiction ? [`--jurisdiction=${jurisdiction}`] : [];
  for (const { name, exists } of queues) {
    if (!exists) print(`Creating the queue ${name}.`);
    const { ok, complaint } = exists
      ? await wrangler.ask("queues", "update", name, KEPT)
      : await wrangler.ask("queues", "create", name, KEPT, ...where);
    if (!ok)
      throw new Error(
        `The queue ${name} cannot keep messages for 14 days, which takes the paid plan: nothing was deployed.\n${complaint}`,
      );
  }
}
