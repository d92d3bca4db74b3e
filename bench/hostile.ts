import type { Runtime } from "../scripts/shared/runtime.ts";
import { type Answer, type Receiver, startReceiver } from "../test/node/support/receiver.ts";
import { until } from "../test/support/until.ts";
import { HANG, withConsumers } from "./delivering.ts";
import type { Samples } from "./figures.ts";
import * as setting from "./setting.ts";
import { quantile } from "./statistics.ts";

const { call, openWorkspace, recordLeads, sleep } = setting;

const SLOW = () => sleep(9_000).then(() => 200);
const EXTENTS = {
  full: { warmUp: 300, rounds: 4, times: 100, burst: 50, timeoutMs: 10_000 },
  quick: { warmUp: 100, rounds: 1, times: 100, burst: 50, timeoutMs: 10_000 },
  smoke: { warmUp: 1, rounds: 1, times: 2, burst: 1, timeoutMs: 5_000 },
};
/** How many hostile receivers there are of each kind. */
const HOSTILE = { slow: 8, hanging: 6, crowd: 20 };
const A_FEW = { slow: 1, hanging: 1, crowd: 1 };
/** How long receivers are watched, and how many leads are recorded for each. */
const WATCHED = { watchMs: 45_000, dead: 300, asked: 50, stopped: 100 };
const WATCHED_SHORTLY = { watchMs: 500, dead: 5, asked: 5, stopped: 10 };

/** Measures a fast receiver next to hostile ones, and the requests to overloaded receivers. */
export async function measureHostile(extent: setting.Extent): Promise<Samples> {
  const neighbours = await measureNeighbours(extent);
  return { ...neighbours, ...(await measurePosts(extent)) };
}

/**
 * Measures the time from record to receipt of a fast receiver, alone in one world and next to 34 hostile ones in
 * another: 8 slow and 6 hanging ones spread over four workspaces, and 20 slow ones in a fifth. All get
 * the same events, ten a second and then fifty at once. Rounds of both worlds alternate. Each world has as many
 * consumers as a deployment.
 */
async function measureNeighbours(extent: setting.Extent): Promise<Samples> {
  const { warmUp, rounds, times, burst, timeoutMs } = EXTENTS[extent];
  // Each receiver has a server of its own, so that none is slow because of another.
  const servers = (count: number, answer: () => Promise<number>) =>
    Promise.all(Array.from({ length: count }, () => startReceiver(answer)));
  const counts = extent === "smoke" ? A_FEW : HOSTILE;
  const mixed = [...(await servers(counts.slow, SLOW)), ...(await servers(counts.hanging, HANG))];
  const crowd = await servers(counts.crowd, SLOW);
  const spread = [0, 1, 2, 3].map((group) => mixed.filter((_, i) => i % 4 === group));
  const groups = [...spread, crowd].map((group) => group.map(({ url }) => url));
  const alone = await openWorld(
    extent,
    groups.map(() => []),
  );
  const hostile = await openWorld(extent, groups);
  const ratios: number[] = [];
  let [received, owed] = [0, 0];
  const alternate = async () => {
    await sample(alone, times, burst, timeoutMs);
    await sample(hostile, warmUp, burst, timeoutMs);
    for (let i = 0; i < rounds; i++) {
      const quiet = await sample(alone, times, burst, timeoutMs);
      const beside = await sample(hostile, times, burst, timeoutMs);
      ratios.push(quantile(beside.waits, 0.99) / quantile(quiet.waits, 0.99));
      received += beside.received;
      owed += beside.waits.length;
    }
  };
  await withConsumers(alone.runtime, () => withConsumers(hostile.runtime, alternate));
  await Promise.all([alone.runtime.stop(), hostile.runtime.stop()]);
  const all = [alone.fast, hostile.fast, ...mixed, ...crowd];
  await Promise.all(all.map((receiver) => receiver.close()));
  return { hostile_p99_ratio: ratios, hostile_received: [received / owed] };
}

type World = Awaited<ReturnType<typeof openWorld>>;

async function openWorld(extent: setting.Extent, groups: string[][]) {
  const runtime = await setting.startOrShare("worker", extent);
  const fast = await startReceiver();
  const { workspaceId } = await openWorkspace(runtime, [fast.url]);
  const others = await Promise.all(groups.map((urls) => openWorkspace(runtime, urls)));
  return { runtime, fast, workspaceId, others };
}

/** Records a steady stream and a burst. What is missing is at least as old as the patience. */
async function sample(world: World, times: number, burst: number, timeoutMs: number) {
  const { runtime, fast, workspaceId, others } = world;
  fast.posts.length = 0;
  const record = async (leads: number) => {
    // The fast receiver comes last, so that the events of all others are recorded before its own.
    await Promise.all(others.map((other) => recordLeads(runtime, other.workspaceId, leads)));
    await recordLeads(runtime, workspaceId, leads);
  };
  const startedAt = Date.now();
  for (let i = 0; i < times; i++) {
    await record(1);
    await sleep(startedAt + (i + 1) * 100 - Date.now());
  }
  await record(burst);
  const owed = times + burst;
  const deadline = Date.now() + timeoutMs;
  const receipts = () => setting.latencies([fast], startedAt);
  while (receipts().length < owed && Date.now() < deadline) await sleep(100);
  const found = receipts();
  const missing = Array.from({ length: owed - found.length }, () => timeoutMs);
  return { waits: [...found, ...missing], received: found.length };
}

const STOP_WITHIN_MS = 2_000;

/** Watches the requests to receivers that are dead, that request a delay, or that must not get any more. */
async function measurePosts(extent: setting.Extent): Promise<Samples> {
  const { watchMs, dead, asked, stopped } = extent === "smoke" ? WATCHED_SHORTLY : WATCHED;
  const runtimes: Runtime[] = [];
  const watch = async (answer: () => Answer | Promise<Answer>, work: Watch) => {
    const runtime = await setting.startOrShare("shipped", extent);
    runtimes.push(runtime);
    const receiver = await startReceiver(answer);
    const workspace = await openWorkspace(runtime, [receiver.url]);
    const posts = await work({ runtime, receiver, ...workspace });
    await receiver.close();
    return posts;
  };
  const count =
    (pending: number, ms: number): Watch =>
    async ({ runtime, receiver, workspaceId }) => {
      await recordLeads(runtime, workspaceId, pending);
      await sleep(ms);
      return receiver.posts.length;
    };
  /** Posts that start too late after `stop`, called once a few of many waiting leads are through. */
  const countAfter =
    (stop: (target: Target) => Promise<unknown>): Watch =>
    async (target) => {
      const { runtime, receiver, workspaceId } = target;
      await recordLeads(runtime, workspaceId, stopped);
      await until(() => receiver.posts.length >= 4);
      await stop(target);
      const stoppedAt = Date.now();
      await sleep(watchMs);
      return receiver.posts.filter(({ at }) => at > stoppedAt + STOP_WITHIN_MS).length;
    };
  const slowly = () => sleep(1_000).then(() => 204);
  const [deadPosts, askedPosts, afterDelete, afterAccess] = await Promise.all([
    watch(() => 500, count(dead, watchMs)),
    watch(
      () => ({ status: 429, headers: { "Retry-After": "15" } }),
      count(asked, Math.min(12_000, watchMs)),
    ),
    watch(slowly, countAfter(removeWebhook)),
    watch(slowly, countAfter(withdrawAccess)),
  ]);
  await Promise.all(runtimes.map((runtime) => runtime.stop()));
  return {
    dead_posts_45s: [deadPosts],
    retry_after_posts_12s: [askedPosts],
    posts_after_delete: [afterDelete],
    posts_after_access: [afterAccess],
  };
}

interface Target {
  runtime: Runtime;
  receiver: Receiver;
  workspaceId: string;
  apiKey: string;
}
type Watch = (target: Target) => Promise<number>;

async function removeWebhook({ runtime, apiKey }: Target): Promise<void> {
  const list = await call(runtime, "/v1/webhooks", { apiKey });
  const { data } = (await list.json()) as { data: { id: string }[] };
  await call(runtime, `/v1/webhooks/${data[0]?.id}`, { apiKey, method: "DELETE", expected: 204 });
}

async function withdrawAccess({ runtime, workspaceId }: Target): Promise<void> {
  await runtime.env.PLATFORM.setWorkspaceAccess({ workspaceId, granted: false });
}
