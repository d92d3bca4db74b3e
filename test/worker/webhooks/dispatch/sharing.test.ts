import { inArray, sql } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import { subscriptions } from "../../../../src/db/schema.ts";
import { dispatch } from "../../../../src/webhooks/dispatch/dispatch.ts";
import { InvocationLimit, type Outcome } from "../../../../src/webhooks/outcome.ts";
import {
  announceLeads,
  answered,
  consumeBodies,
  consumeFor,
  createWorkspace,
  db,
  deliveriesTo,
  dispatchAt,
  isolated,
  observedDatabase,
  owed,
  statesOf,
  subscribe,
  subscriber,
  subscriptionRow,
  toolsAt,
} from "../../../support/deliveries.ts";
import { keepLog } from "../../../support/log-lines.ts";
import { DATABASE, WORKSPACE_DB } from "../../../support/placement.ts";

const NOW = Date.UTC(2026, 0, 5, 12);
const OK = answered(200);

keepLog();

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** Lets `max` calls be in progress; later ones wait, as the runtime's connections do. */
function connections(max: number) {
  let free = max;
  const waiting: (() => void)[] = [];
  return async <T>(work: () => Promise<T>): Promise<T> => {
    if (free > 0) free--;
    else await new Promise<void>((resolve) => waiting.push(resolve));
    try {
      return await work();
    } finally {
      const next = waiting.shift();
      if (next) next();
      else free++;
    }
  };
}

async function subscribeMany(workspaceId: string, count: number): Promise<string[]> {
  const subscribed = Array.from({ length: count }, () => subscribe(workspaceId));
  return (await Promise.all(subscribed)).map(({ id }) => id);
}

describe("subscriptions that share a dispatch", () => {
  test("each get their first post before any gets a second", async () => {
    const workspaceId = await createWorkspace();
    const ids = await subscribeMany(workspaceId, 20);
    await announceLeads(workspaceId, 5, NOW);
    const begun: string[] = [];
    const { attempt } = subscriber(async ({ subscriptionId }) => {
      begun.push(subscriptionId);
      await sleep(2);
      return OK;
    });
    await dispatchAt(NOW, ids, attempt);
    expect(begun).toHaveLength(100);
    expect(new Set(begun.slice(0, 20)).size).toBe(20);
  });

  test("leave two connections to another workspace, and one to wakes and round trips", async () => {
    const [crowded, alone] = [await createWorkspace(), await createWorkspace()];
    const many = await subscribeMany(crowded, 10);
    const [one = ""] = await subscribeMany(alone, 1);
    await announceLeads(crowded, 3, NOW);
    await announceLeads(alone, 1, NOW);
    const measure = async (ids: string[]) => {
      let [current, most] = [0, 0];
      await dispatchAt(NOW, ids, async ({ subscriptionId }) => {
        if (subscriptionId === one) {
          await sleep(50);
          return OK;
        }
        most = Math.max(most, ++current);
        await sleep(2);
        current--;
        return OK;
      });
      return most;
    };
    expect(await measure([...many.slice(0, 5), one])).toBe(3);
    expect(await measure(many.slice(5))).toBe(5);
  });

  test("do not wait for hanging ones: what has not started is released after half a second", async () => {
    const workspaceId = await createWorkspace();
    const hanging = await subscribeMany(workspaceId, 5);
    const waiting = await subscribeMany(workspaceId, 3);
    await announceLeads(workspaceId, 2, NOW);
    let now = NOW;
    const answers: ((outcome: Outcome) => void)[] = [];
    const { posts, attempt } = subscriber(
      () => new Promise<Outcome>((resolve) => answers.push(resolve)),
    );
    const ended: string[] = [];
    const tools = toolsAt(() => now, attempt);
    const run = dispatch(db, [...hanging, ...waiting], "fast", {
      ...tools,
      finished: ({ subscription }) => void ended.push(subscription.subscriptionId),
    });
    await expect.poll(() => posts.length).toBe(5);
    now += 499;
    await sleep(250);
    expect(ended).toEqual([]);
    now += 1;
    await expect.poll(() => ended.toSorted()).toEqual(waiting.toSorted());
    expect(posts).toHaveLength(5);
    for (const id of waiting) expect(await subscriptionRow(id)).toMatchObject({ heldUntil: 0 });
    for (const answer of answers.splice(0)) answer(OK);
    await expect.poll(() => answers.length).toBeGreaterThan(0);
    while (posts.length < 10 || answers.length > 0) {
      for (const answer of answers.splice(0)) answer(OK);
      await sleep(5);
    }
    await run;
    for (const id of hanging) expect(await statesOf(id)).toEqual({ delivered: 2 });
    for (const id of waiting) expect(await statesOf(id)).toEqual({ pending: 2 });
  });

  test("do not wait for hanging ones with a later event, either", async () => {
    const workspaceId = await createWorkspace();
    const hanging = await subscribeMany(workspaceId, 5);
    const [fast = ""] = await subscribeMany(workspaceId, 1);
    await announceLeads(workspaceId, 2, NOW);
    let now = NOW;
    const ended: string[] = [];
    const answer = Promise.withResolvers<Outcome>();
    const { posts, attempt } = subscriber(async ({ subscriptionId }) => {
      if (subscriptionId === fast) return OK;
      return answer.promise;
    });
    const run = dispatch(db, [fast, ...hanging], "fast", {
      ...toolsAt(() => now, attempt),
      finished: ({ subscription }) => void ended.push(subscription.subscriptionId),
    });
    // Its first event was posted before all connections were taken.
    await expect.poll(() => posts.length).toBe(6);
    now += 500;
    await expect.poll(() => ended).toEqual([fast]);
    expect(await statesOf(fast)).toEqual({ delivered: 1, pending: 1 });
    answer.resolve(OK);
    await run;
  });

  test("are woken while others hang, though the runtime queues what exceeds six connections", async () => {
    const workspaceId = await createWorkspace();
    const ids = await subscribeMany(workspaceId, 7);
    await announceLeads(workspaceId, 1, Date.now() - 1);
    const connected = connections(6);
    const answer = Promise.withResolvers<Outcome>();
    const woken: string[] = [];
    const queue = {
      sendBatch: (messages: MessageSendRequest<{ subscriptionId: string }>[]) =>
        connected(async () => void woken.push(...messages.map(({ body }) => body.subscriptionId))),
    } as unknown as Queue;
    const { DB } = observedDatabase();
    const consumed = consumeFor(ids, isolated({ DB, DELIVERIES: queue }).env, () =>
      connected(() => answer.promise),
    );
    await expect.poll(() => woken.length, { timeout: 5_000 }).toBe(2);
    answer.resolve(OK);
    await consumed;
    for (const id of woken) expect(await statesOf(id)).toEqual({ pending: 1 });
  });

  test("have six connections in all, even if they are in several databases and lanes", async () => {
    const workspaceId = await createWorkspace();
    const ids = await subscribeMany(workspaceId, 8);
    await announceLeads(workspaceId, 2, Date.now() - 1);
    const slow = new Set(ids.filter((_, i) => i % 2 === 1));
    await db
      .update(subscriptions)
      .set({ postsAtOnce: 6, slow: sql`id IN ${[...slow]}` as never })
      .where(inArray(subscriptions.id, ids));
    let [current, most] = [0, 0];
    // Two more names for the same database.
    const { env } = isolated();
    const bindings = { ...env, DB_8: WORKSPACE_DB, DB_9: WORKSPACE_DB } as Env;
    const bodies = [DATABASE, "DB_8", "DB_9"].flatMap((database) =>
      ids.map((subscriptionId) => ({
        subscriptionId,
        lane: slow.has(subscriptionId) ? "slow" : "fast",
        database,
      })),
    );
    const { explicitAcks, retryMessages } = await consumeBodies(bodies, bindings, async () => {
      most = Math.max(most, ++current);
      await sleep(20);
      current--;
      return OK;
    });
    expect(most).toBeGreaterThan(1);
    expect(most).toBeLessThanOrEqual(6);
    // Three dispatches of the six; the others are for another invocation.
    expect(explicitAcks).toHaveLength(12);
    expect(retryMessages).toHaveLength(12);
  });

  test("are released once they have answered, though the dispatch is spent and a slow one has not", async () => {
    const fast: string[] = [];
    for (let i = 0; i < 3; i++) {
      const workspaceId = await createWorkspace();
      fast.push(...(await subscribeMany(workspaceId, 1)));
      await announceLeads(workspaceId, 40, NOW);
    }
    const slowWorkspace = await createWorkspace();
    const [slow = ""] = await subscribeMany(slowWorkspace, 1);
    await announceLeads(slowWorkspace, 1, NOW);
    // Ten times as fast as the real one.
    const start = performance.now();
    const now = () => Math.floor(NOW + 10 * (performance.now() - start));
    const answer = Promise.withResolvers<Outcome>();
    const ended: string[] = [];
    const tools = toolsAt(now, async ({ subscriptionId }) => {
      if (subscriptionId === slow) return answer.promise;
      await sleep(subscriptionId === fast[0] ? 90 : 40);
      return OK;
    });
    const run = dispatch(db, [...fast, slow], "fast", {
      ...tools,
      finished: ({ subscription }) => void ended.push(subscription.subscriptionId),
    });
    await expect.poll(() => ended.toSorted(), { timeout: 30_000 }).toEqual(fast.toSorted());
    answer.resolve(OK);
    await run;
  });
});

describe("an invocation that reaches its request limit", () => {
  test("ends its dispatch: the attempt is not counted, answered ones are, the rest is woken", async () => {
    const { id } = await owed(30, Date.now());
    const { posts, attempt } = subscriber(() => {
      if (posts.length > 12) throw new InvocationLimit("Too many subrequests");
      return OK;
    });
    const deployment = isolated();
    await consumeFor([id], deployment.env, attempt);
    expect(await statesOf(id)).toEqual({ delivered: 12, pending: 18 });
    const left = (await deliveriesTo(id)).filter(({ state }) => state === "pending");
    for (const row of left) expect(row).toMatchObject({ attempts: 0, lastOutcome: null });
    expect(await subscriptionRow(id)).toMatchObject({ failures: 0, nextAt: 0, heldUntil: 0 });
    expect(deployment.fast).toEqual([{ subscriptionId: id, lane: "fast", delaySeconds: 0 }]);
    await consumeFor([id], deployment.env, async () => OK);
    expect(await statesOf(id)).toEqual({ delivered: 30 });
  });

  test("before any answer holds up its subscription, and does not retry endlessly", async () => {
    const { id } = await owed(3, Date.now());
    const deployment = isolated();
    await consumeFor([id], deployment.env, async () => {
      throw new InvocationLimit("Too many subrequests");
    });
    expect(deployment.fast).toMatchObject([{ subscriptionId: id }]);
    expect(deployment.fast[0]?.delaySeconds).toBeGreaterThanOrEqual(299);
    expect(await subscriptionRow(id)).toMatchObject({ failures: 0, failingSince: null });
  });

  test("makes at most 50 statements for the 50 posts of the free plan", async () => {
    const workspaceId = await createWorkspace();
    const ids = await subscribeMany(workspaceId, 20);
    await announceLeads(workspaceId, 2, Date.now());
    const { DB, trips } = observedDatabase();
    const deployment = isolated({ DB });
    await consumeFor(ids, deployment.env, async () => {
      await sleep(300);
      return OK;
    });
    expect(trips.length).toBeGreaterThan(4);
    expect(trips.flat().length).toBeLessThanOrEqual(50);
  });
});

describe("gates that hang", () => {
  test("delay a dispatch once, by at most a second", async () => {
    const { id, workspaceId } = await owed(1, NOW);
    await announceLeads(workspaceId, 450, NOW);
    const sleeps: number[] = [];
    const { posts, attempt } = subscriber();
    let told = 0;
    const tools = {
      ...toolsAt(NOW, attempt),
      tellGates: () => {
        told++;
        return new Promise<void>(() => {});
      },
      sleep: async (ms: number) => {
        sleeps.push(ms);
        await sleep(ms / 100);
      },
    };
    await dispatch(db, [id], "fast", tools);
    expect(posts).toHaveLength(451);
    expect(told).toBeGreaterThan(1);
    expect(sleeps.filter((ms) => ms === 1_000)).toHaveLength(1);
  });
});
