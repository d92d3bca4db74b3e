import { startReceiver } from "../test/node/support/receiver.ts";
import { until } from "../test/support/until.ts";
import type { Samples } from "./figures.ts";
import { call, type Extent, openWorkspace, recordLeads, startOrShare, timed } from "./setting.ts";

const LONG_AGO_MS = 100 * 86_400_000;
const EVENTS = { full: 20_000, quick: 2_000, smoke: 20 };

/**
 * Measures how fast the scheduled job, which runs once a minute, deletes expired events. They were recorded and
 * delivered like any others, while the clock was set back a hundred days.
 */
export async function measureRetention(extent: Extent): Promise<Samples> {
  const events = EVENTS[extent];
  const runtime = await startOrShare("worker", extent);
  const receiver = await startReceiver();
  const { workspaceId } = await openWorkspace(runtime, [receiver.url]);
  const ledger = () => runtime.env.PLATFORM.ledger({ workspaceId });
  await call(runtime, `/bench/clock?offset=${-LONG_AGO_MS}`);
  await recordLeads(runtime, workspaceId, events);
  await until(async () => (await ledger()).delivered === events, 300_000);
  await call(runtime, "/bench/clock?offset=0");
  const [perSecond, perRun] = [[] as number[], [] as number[]];
  for (let left = events; left > 0; ) {
    const ms = await timed(() => runtime.scheduled());
    const { created } = await ledger();
    if (created === left) throw new Error(`the scheduled job left ${left} expired events`);
    perSecond.push(((left - created) / ms) * 1000);
    perRun.push(left - created);
    left = created;
  }
  await receiver.close();
  await runtime.stop();
  return { retention_events_per_second: perSecond, retention_events_per_run: perRun };
}
