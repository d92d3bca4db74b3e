import { type Runtime, type RuntimeOptions, startRuntime } from "../scripts/shared/runtime.ts";
import { startReceiver } from "../test/node/support/receiver.ts";
import { until } from "../test/support/until.ts";
import type { Figures } from "./figures.ts";
import { openWorkspace, recordLeads } from "./isolation.ts";

const TABLES = ["leads", "events", "deliveries"];
/** The pause between two reads, and between two recorded leads. */
const PAUSE_MS = 50;
/**
 * The simulated distance of the databases. In the same thread, without any, the mover would never wait
 * and never let other work run.
 */
const ROUND_TRIP_MS = 5;

/**
 * Moves a workspace from one database to another while a client reads its leads and the platform
 * records new ones, whose events are delivered.
 *
 * @param options.bundle that of `bench/worker.ts`.
 */
export async function measureMoves({ quick, ...options }: RuntimeOptions & { quick: boolean }) {
  /** When the move entered a state, by `performance.now()`. */
  const entered = new Map<string, number>();
  const onLog = (line: string) => {
    const state = /"event":"move".*"state":"(\w+)"/.exec(line)?.[1];
    if (state) entered.set(state, performance.now());
  };
  const runtime = await startRuntime({ ...options, databases: 2, onLog });
  const receiver = await startReceiver();
  const { workspaceId, apiKey } = await openWorkspace(runtime, [receiver.url]);
  const leads = quick ? 2_000 : 20_000;
  for (let i = 0; i < leads; i += 100) await recordLeads(runtime, workspaceId, 100);
  const { PLATFORM } = runtime.env;
  await until(async () => (await PLATFORM.ledger({ workspaceId })).pending === 0, 120_000);
  const rows = await countRows(runtime, workspaceId);

  let isOver = false;
  const whileMoving = () => isOver;
  const call = (path: string) => request(new URL(path, runtime.url), apiKey);
  const record = `/bench/floor/record?workspace=${workspaceId}&leads=1&calls=1`;
  const reads = repeat(() => call("/v1/leads"), whileMoving);
  const writes = repeat(() => call(record), whileMoving);
  const startedAt = performance.now();
  await call(`/bench/move?workspace=${workspaceId}&database=DB_2`);
  const seconds = (performance.now() - startedAt) / 1000;
  isOver = true;
  const [readMs, writeMs] = await Promise.all([reads, writes]);
  await until(() => ["draining", "closed", "gone"].every((state) => entered.has(state)));
  await runtime.stop();
  await receiver.close();

  const at = (state: string) => entered.get(state) ?? Number.NaN;
  const figures: Figures = {
    move_rows_per_second: (rows / (at("draining") - startedAt)) * 1000,
    move_closed_ms: at("gone") - at("closed"),
    move_longest_write_ms: Math.max(...writeMs),
    move_longest_read_ms: Math.max(...readMs),
  };
  const table = {
    title: `A workspace with ${leads} leads, ${rows} rows in all, moves to another database`,
    rows: [
      {
        seconds,
        "rows copied / s": figures.move_rows_per_second,
        "closed, ms": figures.move_closed_ms,
        writes: writeMs.length,
        "longest write, ms": figures.move_longest_write_ms,
        reads: readMs.length,
        "longest read, ms": figures.move_longest_read_ms,
      },
    ],
  };
  return { figures, tables: [table] };
}

async function countRows({ env: { DB } }: Runtime, workspaceId: string): Promise<number> {
  const counts = TABLES.map((table) =>
    DB.prepare(`SELECT count(*) AS n FROM ${table} WHERE workspace_id = ?`)
      .bind(workspaceId)
      .first<number>("n"),
  );
  return (await Promise.all(counts)).reduce<number>((sum, n) => sum + Number(n), 0);
}

async function request(url: URL, apiKey: string): Promise<void> {
  const answer = await fetch(url, {
    headers: {
      Authorization: `Bearer ${apiKey}`,
      "X-Bench-Round-Trip-Ms": String(ROUND_TRIP_MS),
    },
  });
  await answer.arrayBuffer();
  if (!answer.ok) throw new Error(`${url.pathname} was answered ${answer.status}`);
}

/** Repeats an action. @returns how long each run took, in milliseconds. */
async function repeat(work: () => Promise<unknown>, isOver: () => boolean): Promise<number[]> {
  const times: number[] = [];
  while (!isOver()) {
    const startedAt = performance.now();
    await work();
    times.push(performance.now() - startedAt);
    await new Promise((resolve) => setTimeout(resolve, PAUSE_MS));
  }
  return times;
}
