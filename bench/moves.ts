import type { Runtime } from "../scripts/shared/runtime.ts";
import { startReceiver } from "../test/node/support/receiver.ts";
import { until } from "../test/support/until.ts";
import type { Samples } from "./figures.ts";
import { call, type Extent, openWorkspace, recordLeads, start, timed } from "./setting.ts";

/** How many leads a small and a large workspace have. */
const LEADS = { full: [3_333, 33_333], quick: [3_333, 33_333], smoke: [10, 100] } as const;
/** How many small workspaces move, one after another. */
const ROUNDS = { full: 3, quick: 1, smoke: 1 };
/** The rows that a delivered lead has: itself, its event and its delivery. */
const ROWS = 3;
/**
 * The simulated distance of the databases. In the same thread, without any, the mover would never wait
 * and never let other work run.
 */
const ROUND_TRIP_MS = 5;

/** How long a workspace takes to move to another database; most of that time, it takes no writes. */
export async function measureMove(extent: Extent): Promise<Samples> {
  const runtime = await start("worker", { databases: 2 });
  const [small, large] = LEADS[extent];
  const smallMs: number[] = [];
  while (smallMs.length < ROUNDS[extent]) smallMs.push(await moveOne(runtime, small));
  const largeMs = await moveOne(runtime, large);
  await runtime.stop();
  const perSecond = (large * ROWS * 1000) / largeMs;
  return { move_10k_ms: smallMs, move_100k_ms: [largeMs], move_rows_per_second: [perSecond] };
}

/** Moves a workspace with so many leads, which have been delivered. @returns how long that took. */
async function moveOne(runtime: Runtime, leads: number): Promise<number> {
  const receiver = await startReceiver();
  const { workspaceId, apiKey } = await openWorkspace(runtime, [receiver.url]);
  await recordLeads(runtime, workspaceId, leads);
  await until(() => receiver.posts.length >= leads, 300_000);
  const { PLATFORM } = runtime.env;
  await until(async () => (await PLATFORM.ledger({ workspaceId })).pending === 0);
  const path = `/bench/move?workspace=${workspaceId}&database=DB_2`;
  const headers = { "X-Bench-Round-Trip-Ms": String(ROUND_TRIP_MS) };
  const ms = await timed(() => call(runtime, path, { headers }));
  await call(runtime, "/v1/leads", { apiKey });
  await receiver.close();
  return ms;
}
