import { startReceiver } from "../test/node/support/receiver.ts";
import { until } from "../test/support/until.ts";
import type { Samples } from "./figures.ts";
import { call, type Extent, openWorkspace, recordLeads, start, timed } from "./setting.ts";

const LEADS = { full: [3_333, 33_333], quick: [3_333], smoke: [100] };
/** The rows that a delivered lead has: itself, its event and its delivery. */
const ROWS = 3;
/**
 * The simulated distance of the databases. In the same thread, without any, the mover would never wait
 * and never let other work run.
 */
const ROUND_TRIP_MS = 5;

/** How long a workspace that moves to another database takes no writes. */
export async function measureMove(extent: Extent): Promise<Samples> {
  const found = { ms: [] as number[], perSecond: [] as number[] };
  for (const leads of LEADS[extent]) {
    const runtime = await start("worker", { databases: 2 });
    const receiver = await startReceiver();
    const { workspaceId, apiKey } = await openWorkspace(runtime, [receiver.url]);
    await recordLeads(runtime, workspaceId, leads);
    const { PLATFORM } = runtime.env;
    await until(async () => (await PLATFORM.ledger({ workspaceId })).pending === 0, 300_000);
    const path = `/bench/move?workspace=${workspaceId}&database=DB_2`;
    const headers = { "X-Bench-Round-Trip-Ms": String(ROUND_TRIP_MS) };
    const ms = await timed(() => call(runtime, path, { headers }));
    await call(runtime, "/v1/leads", { apiKey });
    found.ms.push(ms);
    found.perSecond.push((leads * ROWS * 1000) / ms);
    await runtime.stop();
    await receiver.close();
  }
  return { move_ms: found.ms, move_rows_per_second: found.perSecond };
}
