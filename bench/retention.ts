import type { Runtime } from "../scripts/shared/runtime.ts";
import { startReceiver } from "../test/node/support/receiver.ts";
import { until } from "../test/support/until.ts";
import { setClock } from "./held.ts";
import { openWorkspace, recordLeads } from "./isolation.ts";

const DAY_MS = 86_400_000;
const LONG_AGO_MS = 100 * DAY_MS;

/** How fast expired events are deleted. */
export interface Retention {
  eventsPerSecond: number;
  /** The scheduled job runs once a minute: this limits what can be deleted per day. */
  eventsPerRun: number;
}

/**
 * Lets the scheduled job delete settled events whose retention is over. They were recorded and
 * delivered like any others, while the clock was set back a hundred days.
 *
 * @param runtime runs the bundle of `bench/worker.ts`.
 */
export async function measureRetention(runtime: Runtime, events: number): Promise<Retention> {
  const receiver = await startReceiver();
  const { workspaceId } = await openWorkspace(runtime, [receiver.url]);
  await setClock(runtime, -LONG_AGO_MS);
  for (let i = 0; i < events; i += 100) await recordLeads(runtime, workspaceId, 100);
  const ledger = () => runtime.env.PLATFORM.ledger({ workspaceId });
  await until(() => receiver.posts.length >= events, 300_000);
  await until(async () => (await ledger()).pending === 0, 30_000);
  await setClock(runtime, 0);
  let seconds = 0;
  let runs = 0;
  for (let left = events; left > 0; runs++) {
    const startedAt = performance.now();
    await runtime.scheduled();
    seconds += (performance.now() - startedAt) / 1000;
    const { created } = await ledger();
    if (created === left) throw new Error(`the scheduled job left ${left} expired events`);
    left = created;
  }
  await receiver.close();
  return { eventsPerSecond: events / seconds, eventsPerRun: events / runs };
}
