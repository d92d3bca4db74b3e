/** Keeps a copy of the workspace in a file until Ctrl-C, without losing a change. */
import { setTimeout } from "node:timers/promises";
import type { Client } from "./client.js";
import { Copy } from "./copy.js";
import { receive } from "./receive.js";
import { run } from "./run.js";

const { COPY_FILE = "copy.json", WALK_EVERY_SECONDS = "86400" } = process.env;
/** Until the next try after a walk that failed. */
const RETRY_SECONDS = 60;

const copy = new Copy(COPY_FILE);

// Events arrive before the first walk begins: what a walk has already passed is announced by an event.
await run((client) =>
  receive(
    client,
    (event) => copy.apply(event),
    async (signal) => {
      while (!signal.aborted) {
        const seconds = await walk(client, signal);
        await setTimeout(seconds * 1_000, null, { signal }).catch(() => {});
      }
    },
  ),
);

/** Reads every page of every list. @returns how long to wait before the next walk, in seconds. */
async function walk(client: Client, signal: AbortSignal): Promise<number> {
  try {
    const automations = await copy.automations.replace(client.listAutomations({ signal }));
    const leads = await copy.leads.replace(client.listLeads({ signal }));
    const runs = await copy.runs.replace(client.listRuns({ signal }));
    copy.save();
    console.log(`Walked: automations ${automations}, leads ${leads}, runs ${runs}.`);
    return Number(WALK_EVERY_SECONDS);
  } catch (error) {
    // What was read so far stays; what is gone is only removed by a whole walk.
    if (!signal.aborted) console.error(`${error}: trying again in ${RETRY_SECONDS} s.`);
    return RETRY_SECONDS;
  }
}
