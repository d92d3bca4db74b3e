import type { Samples } from "./figures.ts";
import { call, type Extent, start, timed } from "./setting.ts";

const ROWS = { full: [10_000, 100_000], quick: [10_000, 100_000], smoke: [10, 100] } as const;
const ROUNDS = { full: 3, quick: 1, smoke: 1 };
/**
 * The simulated distance of the databases. In the same thread, without any, the mover would never wait
 * and never let other work run.
 */
const ROUND_TRIP_MS = 5;

/**
 * Measures how long a workspace of leads takes to move to another database. For most of that time, writes are locked.
 */
export async function measureMove(extent: Extent): Promise<Samples> {
  const runtime = await start("worker", { databases: 2 });
  const moveOne = async (rows: number) => {
    const workspace = { name: "Bench", database: "DB" };
    const { workspaceId } = await runtime.env.PLATFORM.createWorkspace(workspace);
    await call(runtime, `/bench/insert?workspace=${workspaceId}&count=${rows}`);
    const path = `/bench/move?workspace=${workspaceId}&database=DB_2`;
    const headers = { "X-Bench-Round-Trip-Ms": String(ROUND_TRIP_MS) };
    return timed(() => call(runtime, path, { headers }));
  };
  const [small, large] = ROWS[extent];
  const [smallMs, largeMs] = [[] as number[], [] as number[]];
  while (largeMs.length < ROUNDS[extent]) {
    smallMs.push(await moveOne(small));
    largeMs.push(await moveOne(large));
  }
  await runtime.stop();
  const perSecond = largeMs.map((ms) => (large * 1000) / ms);
  return { move_10k_ms: smallMs, move_100k_ms: largeMs, move_rows_per_second: perSecond };
}
