import { type Runtime, type RuntimeOptions, startRuntime } from "../scripts/shared/runtime.ts";
import { type Answer, type Receiver, startReceiver } from "../test/node/support/receiver.ts";
import { until } from "../test/support/until.ts";
import { HeldQueues } from "./held.ts";
import { openWorkspace, recordLeads } from "./isolation.ts";

const STOP_WITHIN_MS = 2_000;
/** Longer than a consumer invocation may start posts. */
const WATCH_AFTER_STOP_MS = 35_000;

/** How the service treats overloaded receivers, as they see it. */
export interface Manners {
  /** Posts in 45 s to a receiver that answers 500, with 300 events pending. */
  deadPosts: number;
  /** Posts in 12 s to one that answers 429 with `Retry-After: 15`, with 50 events pending. */
  retryAfterPosts: number;
  /** Posts that start later than 2 s after the subscription was deleted. */
  afterDelete: number;
  /** The same after its workspace lost access. */
  afterAccess: number;
}

/** Watches four receivers for about 45 s, each in its own runtime. */
export async function measureManners(options: RuntimeOptions): Promise<Manners> {
  const watch = async (
    answer: () => Answer | Promise<Answer>,
    work: (world: World) => Promise<number>,
  ) => {
    const [runtime, receiver] = await Promise.all([startRuntime(options), startReceiver(answer)]);
    const workspace = await openWorkspace(runtime, [receiver.url]);
    try {
      return await work({ runtime, receiver, ...workspace });
    } finally {
      await runtime.stop();
      await receiver.close();
    }
  };
  const slow = () => sleep(1_000).then(() => 204);
  const [deadPosts, retryAfterPosts, afterDelete, afterAccess] = await Promise.all([
    watch(
      () => 500,
      (world) => countPosts(world, 300, 45_000),
    ),
    watch(
      () => ({ status: 429, headers: { "Retry-After": "15" } }),
      (world) => countPosts(world, 50, 12_000),
    ),
    watch(slow, (world) => countAfter(world, deleteSubscription)),
    watch(slow, (world) => countAfter(world, withdrawAccess)),
  ]);
  return { deadPosts, retryAfterPosts, afterDelete, afterAccess } as Manners;
}

interface World {
  runtime: Runtime;
  receiver: Receiver;
  workspaceId: string;
  apiKey: string;
}

async function countPosts(world: World, pending: number, ms: number): Promise<number> {
  for (let left = pending; left > 0; left -= 100)
    await recordLeads(world.runtime, world.workspaceId, Math.min(left, 100));
  await sleep(ms);
  return world.receiver.posts.length;
}

/**
 * Posts of 100 waiting leads that start too late after `stop`, which is called once a few are
 * through.
 */
async function countAfter(world: World, stop: (world: World) => Promise<void>): Promise<number> {
  await recordLeads(world.runtime, world.workspaceId, 100);
  await until(() => world.receiver.posts.length >= 4);
  await stop(world);
  const stoppedAt = Date.now();
  await sleep(WATCH_AFTER_STOP_MS);
  return world.receiver.posts.filter(({ at }) => at > stoppedAt + STOP_WITHIN_MS).length;
}

async function deleteSubscription({ runtime, apiKey }: World): Promise<void> {
  const headers = { Authorization: `Bearer ${apiKey}` };
  const list = await fetch(new URL("/v1/webhooks", runtime.url), { headers });
  const { data } = (await list.json()) as { data: { id: string }[] };
  const path = `/v1/webhooks/${data[0]?.id}`;
  const answer = await fetch(new URL(path, runtime.url), { method: "DELETE", headers });
  if (answer.status !== 204) throw new Error(`deleting answered ${answer.status}`);
}

async function withdrawAccess({ runtime, workspaceId }: World): Promise<void> {
  await runtime.env.PLATFORM.setWorkspaceAccess({ workspaceId, granted: false });
}

/**
 * The maximum number of concurrent posts to one subscription while eight consumers repeatedly get
 * its wake message. The local broker runs one batch at a time per queue, so the queue consumer is
 * called directly.
 *
 * @param runtime runs the bundle of `bench/worker.ts`.
 */
export async function measurePostsAtOnce(runtime: Runtime): Promise<number> {
  const events = 1_000;
  let underWay = 0;
  let most = 0;
  const receiver = await startReceiver(async () => {
    most = Math.max(most, ++underWay);
    await sleep(200);
    underWay--;
    return 204;
  });
  const { workspaceId } = await openWorkspace(runtime, [receiver.url]);
  const queues = await HeldQueues.take(runtime);
  for (let i = 0; i < events; i += 100) await recordLeads(runtime, workspaceId, 100);
  const [hint] = await queues.collect();
  if (!hint) throw new Error("no message was sent");
  const deadline = Date.now() + 60_000;
  const consumer = async () => {
    while (receiver.posts.length < events && Date.now() < deadline) {
      await queues.consume(hint.queue, [hint.body]);
      await sleep(50);
    }
  };
  await Promise.all(Array.from({ length: 8 }, consumer));
  await queues.release();
  await receiver.close();
  return most;
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
