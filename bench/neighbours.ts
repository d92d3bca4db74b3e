import type { Runtime } from "../scripts/runtime.ts";
import { type Receiver, startReceiver } from "../test/support/receiver.ts";
import { openWorkspace, recordLeads } from "./isolation.ts";
import { quantile } from "./statistics.ts";

const SLOW_MS = 9_000;
const HANG = () => new Promise<number>(() => {});
const SLOW = () => sleep(SLOW_MS).then(() => 200);

/** A load on all workspaces at once: `times` times, `leads` leads each, `everyMs` apart. */
interface Load {
  times: number;
  leads: number;
  everyMs: number;
}

/** What the fast subscriber got of one load. */
export interface Sample {
  p50Ms: number;
  /** At least: what it did not get in time counts with its age at the end. */
  p99Ms: number;
  got: number;
  of: number;
}

/** The fast subscriber alone and beside hostile ones, under one load. */
export interface Beside {
  alone: Sample;
  hostile: Sample;
  ratio: number;
}

/** How long it takes; the bench itself is measured in minutes, a look at it in seconds. */
export interface Durations {
  warmUpSeconds: number;
  steadySeconds: number;
  bursts: number;
  /** How long after the last event what is still missing is waited for. */
  patienceSeconds: number;
}

/**
 * p99 from record to receipt of a fast subscriber, alone and then beside 34 hostile ones: 8 slow and
 * 6 that hang, spread over four workspaces, and 20 slow ones of a fifth. Everybody gets the same
 * events: a steady stream, then bursts. Alone, the same leads are recorded, and nobody else listens.
 */
export async function measureNeighbours(
  runtime: Runtime,
  durations: Durations,
): Promise<{ steady: Beside; burst: Beside }> {
  const fast = await startReceiver();
  const { workspaceId } = await openWorkspace(runtime, [fast.url]);
  const steady = { times: durations.steadySeconds * 10, leads: 1, everyMs: 100 };
  const burst = { times: durations.bursts, leads: 50, everyMs: 4_000 };
  const patienceMs = durations.patienceSeconds * 1000;
  const quiet = await Promise.all(Array.from({ length: 5 }, () => openWorkspace(runtime, [])));
  const measure = (others: { workspaceId: string }[], load: Load) =>
    sample(runtime, fast, [workspaceId, ...others.map((w) => w.workspaceId)], load, patienceMs);
  await measure(quiet, { ...steady, times: 50 });
  const alone = { steady: await measure(quiet, steady), burst: await measure(quiet, burst) };

  const { receivers, workspaces } = await openHostile(runtime);
  await measure(workspaces, { ...steady, times: durations.warmUpSeconds * 10 });
  const hostile = {
    steady: await measure(workspaces, steady),
    burst: await measure(workspaces, burst),
  };
  await Promise.all([fast, ...receivers].map((receiver) => receiver.close()));
  const beside = (load: "steady" | "burst") => ({
    alone: alone[load],
    hostile: hostile[load],
    ratio: hostile[load].p99Ms / alone[load].p99Ms,
  });
  return { steady: beside("steady"), burst: beside("burst") };
}

/** A server for each of the hostile subscriptions: nobody is slow on behalf of another. */
async function openHostile(runtime: Runtime) {
  const start = (count: number, answer: () => Promise<number>) =>
    Promise.all(Array.from({ length: count }, () => startReceiver(answer)));
  const [slow, hanging, crowd] = [
    await start(8, SLOW),
    await start(6, HANG),
    await start(20, SLOW),
  ];
  const mixed = [...slow, ...hanging];
  const groups = [0, 1, 2, 3].map((group) => mixed.filter((_, i) => i % 4 === group));
  const workspaces = await Promise.all(
    [...groups, crowd].map((group) =>
      openWorkspace(
        runtime,
        group.map(({ url }) => url),
      ),
    ),
  );
  return { receivers: [...mixed, ...crowd], workspaces };
}

/** Puts the load on and waits until the receiver has its share of it, within `patienceMs`. */
async function sample(
  runtime: Runtime,
  receiver: Receiver,
  workspaceIds: string[],
  { times, leads, everyMs }: Load,
  patienceMs: number,
): Promise<Sample> {
  receiver.posts.length = 0;
  const startedAt = Date.now();
  for (let i = 0; i < times; i++) {
    await Promise.all(workspaceIds.map((id) => recordLeads(runtime, id, leads)));
    await sleep(startedAt + (i + 1) * everyMs - Date.now());
  }
  const of = times * leads;
  const deadline = Date.now() + patienceMs;
  let waits = firstReceipts(receiver, startedAt);
  while (waits.length < of && Date.now() < deadline) {
    await sleep(100);
    waits = firstReceipts(receiver, startedAt);
  }
  // What is missing is one of those of this load, and none of them is younger than its last one.
  const missing = Array.from({ length: Math.max(0, of - waits.length) }, () => patienceMs);
  const all = [...waits, ...missing];
  return { p50Ms: quantile(all, 0.5), p99Ms: quantile(all, 0.99), got: waits.length, of };
}

/** Milliseconds from record to the first receipt of each event that was recorded since then. */
function firstReceipts({ posts }: Receiver, since: number): number[] {
  const waits = new Map<string, number>();
  for (const { body, at } of posts) {
    const { id, created_at } = JSON.parse(body.toString()) as { id: string; created_at: string };
    const createdAt = Date.parse(created_at);
    if (createdAt >= since && !waits.has(id)) waits.set(id, at - createdAt);
  }
  return [...waits.values()];
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, Math.max(0, ms)));
}
