import { startReceiver } from "../test/node/support/receiver.ts";
import { until } from "../test/support/until.ts";
import { call, type Extent, meter, openWorkspace, recordLeads, sleep, start } from "./setting.ts";

/** How many events are measured. */
export const EVENTS = { full: 200, quick: 50, smoke: 5 };
const LONG_AGO_MS = 100 * 86_400_000;
/** How long the runtime may take to hand over what it has logged. */
const LOGGED_MS = 500;

/** The resources that an event uses in its life, from its record to its expiry. */
export interface Life {
  rowsRead: number;
  rowsWritten: number;
  messages: number;
  lines: number;
}

/**
 * Measures the life of an event with three subscriptions, recorded alone and in batches of 100, and beside it a page
 * of 25 leads and a sweep that finds nothing to do.
 */
export async function measureLife(extent: Extent) {
  const count = EVENTS[extent];
  let lines = 0;
  const runtime = await start("worker", { onLog: () => lines++ });
  const receivers = await Promise.all(Array.from({ length: 3 }, () => startReceiver()));
  const urls = receivers.map(({ url }) => url);
  const { workspaceId, apiKey } = await openWorkspace(runtime, urls);
  const pending = runtime.env.DB.prepare(
    "SELECT 1 FROM deliveries WHERE state = 'pending' LIMIT 1",
  );
  const isSettled = async () => (await pending.all()).results.length === 0;
  const kept = runtime.env.DB.prepare("SELECT 1 FROM events LIMIT 1");
  const log = async (work: () => Promise<unknown>) => {
    await sleep(LOGGED_MS);
    lines = 0;
    const used = await meter(runtime, work);
    await sleep(LOGGED_MS);
    return { ...used, lines };
  };

  const sweep = await log(() => runtime.scheduled());
  /** Measures the life of `count` events that are recorded `size` at a time, so long ago that they expire now. */
  async function live(size: number): Promise<Life> {
    await call(runtime, `/bench/clock?offset=${-LONG_AGO_MS}`);
    const life = await log(async () => {
      for (let left = count; left > 0; left -= size) {
        await recordLeads(runtime, workspaceId, Math.min(size, left));
        await until(isSettled, 60_000);
      }
    });
    await call(runtime, "/bench/clock?offset=0");
    let sweeps = 0;
    const expiry = await log(async () => {
      for (; (await kept.all()).results.length > 0; sweeps++) await runtime.scheduled();
    });
    const of = (name: keyof typeof life) =>
      (life[name] + expiry[name] - sweeps * sweep[name]) / count;
    return {
      rowsRead: of("rowsRead"),
      rowsWritten: of("rowsWritten"),
      messages: of("messages"),
      lines: of("lines"),
    };
  }
  const alone = await live(1);
  const together = await live(100);
  const page = await log(() => call(runtime, "/v1/leads?limit=25", { apiKey }));

  await Promise.all(receivers.map(({ close }) => close()));
  await runtime.stop();
  return { alone, together, page, sweep };
}
