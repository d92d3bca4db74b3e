import { type Runtime, type RuntimeOptions, startRuntime } from "../scripts/shared/runtime.ts";
import { startReceiver } from "../test/node/support/receiver.ts";
import { until } from "../test/support/until.ts";
import type { Figures } from "./figures.ts";
import { openWorkspace, recordLeads } from "./isolation.ts";
import { median, quantile } from "./statistics.ts";

/** Workspaces that record concurrently, spread evenly over the databases. */
const WORKSPACES = 4;
const COUNTS = [1, 2, 4];
const QUIET_MS = 4_000;
/** The pause between two reads of a client. */
const READ_EVERY_MS = 10;

interface Durations {
  rounds: number;
  /** Leads that each workspace records in a round. */
  leads: number;
}

/**
 * Measures what several databases change: how much is recorded and delivered, and how long reads take
 * next to a busy workspace.
 *
 * @param options.bundle that of `bench/worker.ts`.
 */
export async function measureDatabases({
  quick,
  step,
  ...options
}: RuntimeOptions & { quick: boolean; step: (name: string) => void }) {
  const rounds = quick ? 1 : 5;
  step("one, two and four databases");
  const counts = await measureCounts(options, { rounds, leads: quick ? 500 : 2_000 });
  step("reads beside a busy workspace");
  const neighbours = await measureNeighbours(options, rounds);
  const [one, , four] = counts;
  const p99Beside = (wanted: Neighbour["busy"]) =>
    neighbours.find(({ busy }) => busy === wanted)?.readP99Ms ?? Number.NaN;
  const figures: Figures = {
    databases_recording_ratio:
      (four?.leadsPerSecond ?? Number.NaN) / (one?.leadsPerSecond ?? Number.NaN),
    databases_delivering_ratio:
      (four?.deliveriesPerSecond ?? Number.NaN) / (one?.deliveriesPerSecond ?? Number.NaN),
    busy_neighbour_p99_ratio: p99Beside("the other database") / p99Beside("the same database"),
  };
  const tables = [
    {
      title: "The same four workspaces in one database, in two and in four",
      rows: counts.map(({ databases, leadsPerSecond, deliveriesPerSecond }) => ({
        databases,
        "leads / s": leadsPerSecond,
        "recorded and delivered / s": deliveriesPerSecond,
      })),
    },
    {
      title: "GET /v1/leads while a workspace has leads recorded without a pause",
      rows: neighbours.map(({ busy, readP50Ms, readP99Ms }) => ({
        "that one is in": busy,
        "p50, ms": readP50Ms,
        "p99, ms": readP99Ms,
      })),
    },
  ];
  return { figures, tables };
}

/**
 * Measures leads recorded and events delivered per second, for the same four workspaces in one
 * database, in two and in four. Rounds of all three alternate.
 *
 * @param options names the bundle of `bench/worker.ts`.
 */
async function measureCounts(options: RuntimeOptions, { rounds, leads }: Durations) {
  const worlds = [];
  for (const databases of COUNTS) worlds.push(await openWorld(options, databases));
  for (let i = 0; i < rounds; i++)
    for (const world of worlds) {
      world.recording.push(await recordInAll(world, leads));
      world.delivering.push(await deliverToAll(world, leads));
    }
  for (const { runtime, receiver } of worlds) {
    await runtime.stop();
    await receiver.close();
  }
  return worlds.map(({ databases, recording, delivering }) => ({
    databases,
    leadsPerSecond: median(recording),
    deliveriesPerSecond: median(delivering),
  }));
}

type World = Awaited<ReturnType<typeof openWorld>>;

async function openWorld(options: RuntimeOptions, databases: number) {
  const runtime = await startRuntime({ ...options, databases });
  const receiver = await startReceiver();
  const databaseOf = (i: number) => nameOf(i % databases);
  const open = (urls: string[]) =>
    Promise.all(
      Array.from({ length: WORKSPACES }, (_, i) => openWorkspace(runtime, urls, databaseOf(i))),
    );
  const [silent, listening] = [await open([]), await open([receiver.url])];
  const figures = { recording: [] as number[], delivering: [] as number[] };
  return { runtime, receiver, databases, silent, listening, ...figures };
}

/** The binding of a database. @param index from 0. */
function nameOf(index: number): string {
  return index === 0 ? "DB" : `DB_${index + 1}`;
}

async function recordInAll({ runtime, silent }: World, leads: number): Promise<number> {
  const startedAt = performance.now();
  await Promise.all(silent.map(({ workspaceId }) => record(runtime, workspaceId, leads)));
  return ((leads * WORKSPACES) / (performance.now() - startedAt)) * 1000;
}

async function deliverToAll(world: World, leads: number): Promise<number> {
  const { runtime, receiver, listening } = world;
  receiver.posts.length = 0;
  const startedAt = performance.now();
  await Promise.all(listening.map(({ workspaceId }) => record(runtime, workspaceId, leads)));
  await until(() => receiver.posts.length >= leads * WORKSPACES, 120_000);
  return ((leads * WORKSPACES) / (performance.now() - startedAt)) * 1000;
}

/** Records leads in calls of 100, one after another, inside the Worker. */
async function record(runtime: Runtime, workspace: string, leads: number): Promise<void> {
  const query = new URLSearchParams({ workspace, leads: "100", calls: String(leads / 100) });
  const answer = await fetch(new URL(`/bench/floor/record?${query}`, runtime.url));
  await answer.arrayBuffer();
  if (!answer.ok) throw new Error(`recording was answered ${answer.status}`);
}

/** How long `GET /v1/leads` takes in an idle database. */
interface Neighbour {
  busy: "none" | "the other database" | "the same database";
  readP50Ms: number;
  readP99Ms: number;
}

/**
 * Times reads of a workspace while leads are constantly recorded for another one: in the other
 * database, in the same one, and not at all. Rounds of all three alternate.
 */
async function measureNeighbours(options: RuntimeOptions, rounds: number): Promise<Neighbour[]> {
  const runtime = await startRuntime({ ...options, databases: 2 });
  const reader = await openWorkspace(runtime, [], "DB");
  await recordLeads(runtime, reader.workspaceId, 25);
  const neighbours: [Neighbour["busy"], string | null][] = [
    ["none", null],
    ["the other database", (await openWorkspace(runtime, [], "DB_2")).workspaceId],
    ["the same database", (await openWorkspace(runtime, [], "DB")).workspaceId],
  ];
  const times = neighbours.map((): number[] => []);
  for (let i = 0; i < rounds; i++)
    for (const [n, [, workspaceId]] of neighbours.entries()) {
      let isOver = false;
      const busy = async () => {
        while (!isOver && workspaceId !== null) await record(runtime, workspaceId, 500);
      };
      const work = Promise.all([busy(), busy()]);
      times[n]?.push(...(await readFor(runtime, reader.apiKey, QUIET_MS)));
      isOver = true;
      await work;
    }
  await runtime.stop();
  return neighbours.map(([busy], n) => ({
    busy,
    readP50Ms: quantile(times[n] ?? [], 0.5),
    readP99Ms: quantile(times[n] ?? [], 0.99),
  }));
}

/** How long each of several consecutive reads took, in milliseconds. */
async function readFor(runtime: Runtime, apiKey: string, durationMs: number): Promise<number[]> {
  const times: number[] = [];
  const endsAt = performance.now() + durationMs;
  while (performance.now() < endsAt) {
    const startedAt = performance.now();
    const answer = await fetch(new URL("/v1/leads", runtime.url), {
      headers: { Authorization: `Bearer ${apiKey}` },
    });
    await answer.arrayBuffer();
    if (answer.status !== 200) throw new Error(`a read was answered ${answer.status}`);
    times.push(performance.now() - startedAt);
    await new Promise((resolve) => setTimeout(resolve, READ_EVERY_MS));
  }
  return times;
}
