import type { Runtime } from "../scripts/shared/runtime.ts";
import { type Receiver, startReceiver } from "../test/node/support/receiver.ts";
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
  /** A lower bound: what it did not get in time counts with its age at the end. */
  p99Ms: number;
  got: number;
  of: number;
}

/** The fast subscriber alone and next to hostile ones, under one load. */
export interface Beside {
  alone: Sample;
  hostile: Sample;
  ratio: number;
}

/**
 * The parameters. Rounds of both worlds alternate, so that they share what else the machine does.
 */
export interface Durations {
  warmUpSeconds: number;
  rounds: number;
  /** For a steady stream, per round. */
  steadySeconds: number;
  /** Per round. */
  bursts: number;
  /** How long to wait for missing events after the last event of a round. */
  patienceSeconds: number;
}

/** A world with its fast subscriber, and the other workspaces that get the same events. */
interface World {
  runtime: Runtime;
  fast: Receiver;
  workspaceId: string;
  others: { workspaceId: string }[];
}

/**
 * p99 from record to receipt of a fast subscriber, alone in one world and next to 34 hostile ones
 * in another: 8 slow and 6 hanging ones spread over four workspaces, and 20 slow ones in a fifth.
 * All get the same events: a steady stream, and bursts. In the first world, the same leads are
 * recorded, but nobody else is subscribed.
 */
export async function measureNeighbours(
  start: () => Promise<Runtime>,
  { rounds, ...durations }: Durations,
): Promise<{ steady: Beside; burst: Beside }> {
  const { receivers, groups } = await startHostile();
  const alone = await openWorld(
    await start(),
    Array.from({ length: 5 }, () => []),
  );
  const hostile = await openWorld(await start(), groups);
  const steady = { times: durations.steadySeconds * 10, leads: 1, everyMs: 100 };
  const burst = { times: durations.bursts, leads: 50, everyMs: 4_000 };
  const patienceMs = durations.patienceSeconds * 1000;
  await sample(alone, { ...steady, times: 50 }, patienceMs);
  await sample(hostile, { ...steady, times: durations.warmUpSeconds * 10 }, patienceMs);
  const alternate = async (load: Load): Promise<Beside> => {
    const waits = { alone: [] as number[], hostile: [] as number[] };
    const got = { alone: 0, hostile: 0 };
    for (let i = 0; i < rounds; i++)
      for (const [name, world] of [["alone", alone] as const, ["hostile", hostile] as const]) {
        const found = await sample(world, load, patienceMs);
        waits[name].push(...found.waits);
        got[name] += found.got;
      }
    const summary = (name: "alone" | "hostile"): Sample => ({
      p50Ms: quantile(waits[name], 0.5),
      p99Ms: quantile(waits[name], 0.99),
      got: got[name],
      of: waits[name].length,
    });
    const found = { alone: summary("alone"), hostile: summary("hostile") };
    return { ...found, ratio: found.hostile.p99Ms / found.alone.p99Ms };
  };
  const found = { steady: await alternate(steady), burst: await alternate(burst) };
  await Promise.all([alone.runtime.stop(), hostile.runtime.stop()]);
  await Promise.all([alone.fast, hostile.fast, ...receivers].map((receiver) => receiver.close()));
  return found;
}

async function openWorld(runtime: Runtime, groups: string[][]): Promise<World> {
  const fast = await startReceiver();
  const { workspaceId } = await openWorkspace(runtime, [fast.url]);
  const others = await Promise.all(groups.map((urls) => openWorkspace(runtime, urls)));
  return { runtime, fast, workspaceId, others };
}

/** A server for each hostile subscription, so that none is slow because of another. */
async function startHostile(): Promise<{ receivers: Receiver[]; groups: string[][] }> {
  const start = (count: number, answer: () => Promise<number>) =>
    Promise.all(Array.from({ length: count }, () => startReceiver(answer)));
  const [slow, hanging, crowd] = [
    await start(8, SLOW),
    await start(6, HANG),
    await start(20, SLOW),
  ];
  const mixed = [...slow, ...hanging];
  const spread = [0, 1, 2, 3].map((group) => mixed.filter((_, i) => i % 4 === group));
  const groups = [...spread, crowd].map((group) => group.map(({ url }) => url));
  return { receivers: [...mixed, ...crowd], groups };
}

/** Applies the load and waits until the receiver has its share of it, within `patienceMs`. */
async function sample(
  { runtime, fast, workspaceId, others }: World,
  { times, leads, everyMs }: Load,
  patienceMs: number,
) {
  fast.posts.length = 0;
  const startedAt = Date.now();
  for (let i = 0; i < times; i++) {
    // The fast one last: its events find those of all others already recorded.
    await Promise.all(others.map((other) => recordLeads(runtime, other.workspaceId, leads)));
    await recordLeads(runtime, workspaceId, leads);
    await sleep(startedAt + (i + 1) * everyMs - Date.now());
  }
  const of = times * leads;
  const deadline = Date.now() + patienceMs;
  let receipts = firstReceipts(fast, startedAt);
  while (receipts.length < of && Date.now() < deadline) {
    await sleep(100);
    receipts = firstReceipts(fast, startedAt);
  }
  // What is missing is at least as old as the patience.
  const missing = Array.from({ length: of - receipts.length }, () => patienceMs);
  return { waits: [...receipts, ...missing], got: receipts.length };
}

/** Milliseconds from record to first receipt of each event recorded since then. */
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
