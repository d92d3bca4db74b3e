import { describe, expect, test } from "vitest";
import { dispatch } from "../../../src/delivery/dispatch.ts";
import { InvocationLimit, type Outcome } from "../../../src/webhooks/outcome.ts";
import {
  announceLeads,
  answered,
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
} from "../../support/deliveries.ts";
import { keepLog } from "../../support/log-lines.ts";

const NOW = Date.UTC(2026, 0, 5, 12);
const OK = answered(200);

keepLog();

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
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

  test("leave three connections to another workspace, and use all six if there is none", async () => {
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
    expect(await measure(many.slice(5))).toBe(6);
  });

  test("do not wait for hanging ones: what has not started is released after half a second", async () => {
    const workspaceId = await createWorkspace();
    const hanging = await subscribeMany(workspaceId, 6);
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
      ended: ({ found }) => void ended.push(found.subscriptionId),
    });
    await expect.poll(() => posts.length).toBe(6);
    now += 499;
    await sleep(250);
    expect(ended).toEqual([]);
    now += 1;
    await expect.poll(() => ended.toSorted()).toEqual(waiting.toSorted());
    expect(posts).toHaveLength(6);
    for (const id of waiting) expect(await subscriptionRow(id)).toMatchObject({ heldUntil: 0 });
    for (const answer of answers.splice(0)) answer(OK);
    await expect.poll(() => answers.length).toBeGreaterThan(0);
    while (posts.length < 12 || answers.length > 0) {
      for (const answer of answers.splice(0)) answer(OK);
      await sleep(5);
    }
    await run;
    for (const id of hanging) expect(await statesOf(id)).toEqual({ delivered: 2 });
    for (const id of waiting) expect(await statesOf(id)).toEqual({ pending: 2 });
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

  test("makes at most six round trips for the 50 posts of the free plan", async () => {
    const workspaceId = await createWorkspace();
    const ids = await subscribeMany(workspaceId, 20);
    await announceLeads(workspaceId, 2, Date.now());
    const { DB, trips } = observedDatabase();
    const deployment = isolated({ DB });
    await consumeFor(ids, deployment.env, async () => {
      await sleep(300);
      return OK;
    });
    expect(trips.length).toBeLessThanOrEqual(6);
  });
});

describe("gates that hang", () => {
  test("delay a dispatch once, by at most a second", async () => {
    const { id, workspaceId } = await owed(1, NOW);
    await announceLeads(workspaceId, 250, NOW);
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
    expect(posts).toHaveLength(251);
    expect(told).toBeGreaterThan(1);
    expect(sleeps.filter((ms) => ms === 1_000)).toHaveLength(1);
  });
});
