import { createScheduledController } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { eq, ne } from "drizzle-orm";
import { afterAll, describe, expect, test } from "vitest";
import { newEventId } from "../../src/contract/ids.ts";
import { CLEANUP_MAX } from "../../src/db/budget.ts";
import { commit } from "../../src/db/client.ts";
import {
  automations,
  deliveries,
  PRIORITY,
  subscriptions,
  sweepPositions,
} from "../../src/db/schema.ts";
import { LEASE_MS } from "../../src/dispatch/claims.ts";
import worker from "../../src/index.ts";
import { findServiceHealth } from "../../src/service-health.ts";
import { deleteSubscription } from "../../src/subscriptions/subscriptions.ts";
import { sweep } from "../../src/sweep.ts";
import { openWorkspace, Platform, recordAutomation } from "../support/api.ts";
import {
  answered,
  BROKEN,
  DAY_MS,
  deliveriesTo,
  dispatchAt,
  dispatchOn,
  failingSince,
  HOUR_MS,
  heldDispatch,
  isolated,
  MINUTE_MS,
  observedDatabase,
  owed,
  REFUSING_QUEUE,
  receivedBy,
  type Sent,
  setDeliveries,
  setSubscription,
  statesOf,
  subscriptionRow,
} from "../support/deliveries.ts";
import { interposed } from "../support/interposed.ts";
import { keepLog } from "../support/log-lines.ts";
import { db, inDatabase, WORKSPACE_DB } from "../support/placement.ts";
import {
  insertDeliveries,
  insertEvents,
  insertSubscriptions,
  insertWorkspaces,
} from "../support/rows.ts";

const lines = keepLog();

const NOW = Date.UTC(2026, 5, 5, 12);

/** The wake-ups in `sent` for this subscription. */
function to(id: string, sent: Sent[]): Sent[] {
  return sent.filter(({ subscriptionId }) => subscriptionId === id);
}

/** The queues of the wake-ups that a sweep sends for a subscription. */
async function wokenAt(now: number, id: string, run = (env: Env) => sweep(env, now)) {
  const { env, fast, slow } = isolated();
  await run(env);
  return to(id, [...fast, ...slow]).map(({ queue }) => queue);
}

/** An automation that was removed so long ago that it is due for deletion at `NOW`. */
async function recordRemoved(): Promise<string> {
  const { workspaceId } = await openWorkspace();
  const id = await recordAutomation(workspaceId);
  await Platform.removeAutomations({ workspaceId, ids: [id] });
  await db
    .update(automations)
    .set({ removedAt: NOW - 40 * DAY_MS })
    .where(eq(automations.id, id));
  return id;
}

describe("the sweep", () => {
  test("wakes what has been overdue for 60 s, and nothing else", async () => {
    const [overdue, oldest] = [await owed(3, NOW - 60_000), await owed(1, NOW - 6 * DAY_MS)];
    const done = await owed(1, NOW - HOUR_MS);
    await dispatchAt(NOW - HOUR_MS, [done.id], answered(200));
    const others = [await owed(1, NOW - 59_999), await owed(1, NOW + HOUR_MS), done];
    const { env, fast, slow } = isolated();
    await sweep(env, NOW);
    for (const { id } of [overdue, oldest])
      expect(to(id, fast)).toMatchObject([{ queue: "fast", delaySeconds: 0 }]);
    expect(others.flatMap(({ id }) => to(id, fast)).concat(slow)).toEqual([]);
  });

  test("wakes a delivery a minute after its circuit lets it be tried again, and no sooner", async () => {
    const { id } = await owed(1, NOW - 10 * MINUTE_MS);
    await dispatchAt(NOW, [id], answered(503));
    const probeAt = NOW + 1_000;
    expect(await wokenAt(probeAt + MINUTE_MS - 1, id)).toEqual([]);
    expect(await wokenAt(probeAt + MINUTE_MS, id)).toEqual(["fast"]);
  });

  test("wakes a resend a minute after it is due, though its circuit is open for longer", async () => {
    const { id } = await owed(1, NOW);
    await dispatchAt(NOW, [id], answered(503, 1_800));
    const resentAt = NOW + MINUTE_MS;
    expect(await wokenAt(resentAt + MINUTE_MS, id)).toEqual([]);
    await setDeliveries(id, { priority: PRIORITY.resend, dueAt: resentAt });
    expect(await wokenAt(resentAt + MINUTE_MS - 1, id)).toEqual([]);
    expect(await wokenAt(resentAt + MINUTE_MS, id)).toEqual(["fast"]);
  });

  test("wakes a thousand subscriptions, and the next run continues with the others", async () => {
    const { id, workspaceId, drafts } = await owed(1, NOW - HOUR_MS);
    await db.delete(deliveries);
    const ids = Array.from({ length: 1_100 }, (_, i) => `whk_${String(i).padStart(25, "0")}`);
    await insertSubscriptions(ids.map((id) => ({ id, workspaceId })));
    const overdue = { eventId: drafts[0]?.id ?? "", workspaceId, dueAt: NOW - HOUR_MS };
    await insertDeliveries(ids.map((subscriptionId) => ({ subscriptionId, ...overdue })));
    const woken: string[][] = [];
    // The next run sends first the messages that a queue has not accepted.
    const refusing = isolated({ DELIVERIES: REFUSING_QUEUE });
    await expect(sweep(refusing.env, NOW)).rejects.toThrow("1 jobs of the sweep failed");
    for (let i = 0; i < 3; i++) {
      const { env, fast } = isolated();
      await sweep(env, NOW);
      woken.push(fast.map(({ subscriptionId }) => subscriptionId));
    }
    expect(woken.map(({ length }) => length)).toEqual([1_000, 100, 1_000]);
    expect(woken.slice(0, 2).flat()).toEqual(ids);
    await db.delete(subscriptions).where(ne(subscriptions.id, id));
    await db.delete(deliveries);
  });

  test("fails if a queue rejects its wake-up messages, and sends the same ones the next time", async () => {
    const { id } = await owed(1, NOW - HOUR_MS);
    const refusing = isolated({ DELIVERIES: REFUSING_QUEUE });
    await expect(sweep(refusing.env, NOW)).rejects.toThrow("1 jobs of the sweep failed");
    expect(await wokenAt(NOW, id)).toEqual(["fast"]);
  });

  test("wakes subscriptions whose retry is late", async () => {
    const { id } = await owed(1, NOW);
    await dispatchAt(NOW, [id], answered(500));
    const [{ dueAt = 0 } = {}] = await deliveriesTo(id);
    expect(await wokenAt(dueAt + MINUTE_MS - 1, id)).toEqual([]);
    expect(await wokenAt(dueAt + MINUTE_MS + 1, id)).toEqual(["fast"]);
  });

  test("wakes a subscription whose last attempt is dated ahead, by a clock that was wrong", async () => {
    const { id } = await owed(1, NOW - HOUR_MS);
    const made = { outcome: "answered", status: 200, durationMs: 9 };
    await setSubscription(id, { lastAttempt: { at: NOW + HOUR_MS, ...made } });
    expect(await wokenAt(NOW, id)).toEqual(["fast"]);
  });

  test("gets a delivery whose message was lost delivered, through the deployment's queues", async () => {
    const { id, url, drafts } = await owed(2, Date.now() - 2 * MINUTE_MS);
    await sweep(env, Date.now());
    await expect.poll(() => statesOf(id)).toEqual({ delivered: 2 });
    const bodies = (await receivedBy({ url })).map(({ body }) => body);
    expect(bodies.toSorted()).toEqual(drafts.map(({ body }) => body).toSorted());
  });

  test.each([
    ["whose hold was abandoned", { delivered: 1 }],
    ["that was deleted under a lease, so that its deliveries are cancelled", { cancelled: 1 }],
  ])("wakes a subscription %s", async (what, states) => {
    const { id, workspaceId } = await owed(1, NOW - MINUTE_MS);
    await heldDispatch(NOW, id);
    if (what.includes("deleted")) await commit(db, deleteSubscription(workspaceId, id, NOW));
    expect(await statesOf(id)).toEqual({ pending: 1 });
    expect(await wokenAt(NOW + LEASE_MS - 1, id)).toEqual([]);
    expect(await wokenAt(NOW + LEASE_MS, id)).toEqual(["fast"]);
    await dispatchAt(NOW + LEASE_MS, [id], answered(200));
    expect(await statesOf(id)).toEqual(states);
  });

  test("deletes a deleted subscription whose dispatch died after its last delivery, and no other", async () => {
    const [done, left] = [await owed(1, NOW), await owed(1, NOW)];
    await commit(db, deleteSubscription(left.workspaceId, left.id, NOW));
    const before = (trip: number) => {
      // The second one has recorded the post.
      if (trip > 2) throw BROKEN;
    };
    const attempt = async () => {
      await commit(db, deleteSubscription(done.workspaceId, done.id, NOW));
      return answered(200);
    };
    const died = dispatchOn(observedDatabase({ before }).DB, NOW, [done.id], attempt);
    await expect(died).rejects.toThrow();
    expect(await subscriptionRow(done.id)).toMatchObject({ hasToEnd: true });
    await sweep(isolated().env, NOW);
    await expect(subscriptionRow(done.id)).rejects.toThrow("no subscription");
    expect(await subscriptionRow(left.id)).toMatchObject({ hasToEnd: true });
  });

  test("deletes more deleted subscriptions in one run than a statement does", async () => {
    const { id, workspaceId } = await owed(1, NOW);
    await insertSubscriptions(
      Array.from({ length: CLEANUP_MAX + 1 }, (_, i) => ({
        id: `whk_ended${i}`,
        workspaceId,
        deletedAt: i,
      })),
    );
    await sweep(isolated().env, NOW);
    const stored = await db.select({ id: subscriptions.id }).from(subscriptions);
    expect(stored.filter((row) => row.id.startsWith("whk_ended"))).toHaveLength(0);
    expect(stored).toContainEqual({ id });
  });

  test("of more databases than it can sweep at once takes them in turn", async () => {
    const swept: string[] = [];
    // Beside the one that works.
    const names = ["DB_2", "DB_3", "DB_4", "DB_5", "DB_6"];
    const databases = names.map((name) => {
      const before = (_: number, texts: string[]) => {
        if (texts.join().includes("sweep_positions")) swept.push(name);
        throw BROKEN;
      };
      return [name, observedDatabase({ before }).DB];
    });
    const deployment = { ...isolated().env, ...Object.fromEntries(databases) };
    const turns: string[][] = [];
    for (let minute = 0; minute <= names.length; minute++) {
      await expect(sweep(deployment, NOW + minute * MINUTE_MS)).rejects.toThrow(
        "jobs of the sweep failed",
      );
      turns.push([...new Set(swept.splice(0))]);
    }
    const times = names.map((name) => turns.filter((turn) => turn.includes(name)).length);
    expect(times).toEqual(names.map(() => 4));
    for (const [i, turn] of turns.slice(1).entries())
      expect(new Set([...(turns[i] ?? []), ...turn]).size).toBe(names.length);
  });

  test("of more databases than it can sweep at once counts the newest events of each in the first minutes of an hour", async () => {
    await db.delete(sweepPositions);
    const counted: string[] = [];
    const names = ["DB", "DB_2", "DB_3", "DB_4", "DB_5"];
    const databases = names.map((name) => {
      const before = (_: number, texts: string[]) => {
        if (!/ OFFSET .*\) AS before/s.test(texts.join())) return;
        counted.push(name);
        // All are the same database, and none notes a place for the others.
        throw BROKEN;
      };
      return [name, observedDatabase({ before }).DB];
    });
    const deployment = { ...isolated().env, ...Object.fromEntries(databases) };
    for (const minute of [0, 1]) await sweep(deployment, NOW + minute * MINUTE_MS).catch(() => {});
    expect([...new Set(counted)].toSorted()).toEqual(names);
  });

  test("uses the cron's time", async () => {
    const { id } = await owed(1, NOW);
    const at = (ms: number) =>
      wokenAt(NOW, id, (env) => {
        const scheduledTime = new Date(NOW + ms);
        return worker.scheduled(createScheduledController({ scheduledTime }), env);
      });
    expect([await at(59_999), await at(60_000)]).toEqual([[], ["fast"]]);
  });
});

describe("a sweep of many workspaces", () => {
  const WORKSPACES = 150;

  /** So many workspaces, each with two events of this age that no subscription lists. */
  async function fill(ageMs: number): Promise<string[]> {
    const ids = Array.from({ length: WORKSPACES }, () => `wks_filled${crypto.randomUUID()}`);
    await insertWorkspaces(ids.map((id) => ({ id })));
    const createdAt = NOW - ageMs;
    await insertEvents(
      [...ids, ...ids].map((workspaceId) => ({
        workspaceId,
        id: newEventId(createdAt),
        createdAt,
      })),
    );
    return ids;
  }

  async function eventsIn(ids: string[]): Promise<number> {
    const count = `SELECT count(*) AS n FROM events WHERE workspace_id IN (SELECT value FROM json_each(?))`;
    const row = await WORKSPACE_DB.prepare(count).bind(JSON.stringify(ids)).first<{ n: number }>();
    return row?.n ?? -1;
  }

  // Each later sweep would look for events of all of them.
  afterAll(() =>
    WORKSPACE_DB.batch([
      WORKSPACE_DB.prepare("DELETE FROM events WHERE workspace_id GLOB 'wks_filled*'"),
      WORKSPACE_DB.prepare("DELETE FROM workspaces WHERE id GLOB 'wks_filled*'"),
    ]),
  );

  /** A sweep, and the statements that it takes of the 1,000 that an invocation has. */
  async function sweepCounted(now: number): Promise<number> {
    const { DB, trips } = observedDatabase();
    await sweep(isolated({ DB }).env, now);
    return trips.flat().length;
  }

  test.each([
    ["a new event each", 3 * MINUTE_MS, 2 * WORKSPACES],
    ["an expired event each", 31 * DAY_MS, 0],
  ])("with %s takes no more statements than that of one", async (_, ageMs, left) => {
    // What other tests have left pending takes different numbers of statements.
    await db.delete(deliveries);
    const alone = await sweepCounted(NOW);
    const ids = await fill(ageMs);
    expect(await sweepCounted(NOW)).toBeLessThan(alone + 100);
    expect(await eventsIn(ids)).toBe(left);
  });

  test("has a share for each job: what one uses up, the others do not lack", async () => {
    const { env, fast } = isolated();
    const overdue = await owed(1, NOW - HOUR_MS);
    const expired = await fill(31 * DAY_MS);
    // A job that never ends: each time, another subscription has something pending. Retention waits for its end.
    const { DB } = observedDatabase();
    const endlessJob = Promise.withResolvers<void>();
    let asked = 0;
    const endless = interposed(DB, async ({ texts, values, go }) => {
      const parts = values.flat();
      if (parts.includes("retention")) await endlessJob.promise;
      if (parts.includes("pending") && /^insert/.test(texts.join())) endlessJob.resolve();
      const found = await go();
      if (!/ AS isOver/.test(texts.join())) return found;
      asked++;
      return { ...found, results: [{ subscriptionId: `whk_${asked}`, slow: 0, isOver: 0 }] };
    });
    await sweep({ ...env, ...inDatabase({ DB: endless }) }, NOW);
    expect(asked).toBeGreaterThan(50);
    expect(to(overdue.id, fast)).toHaveLength(1);
    expect(await eventsIn(expired)).toBe(0);
    const { problems } = await findServiceHealth(env, NOW);
    expect(problems.join()).not.toContain("sweep");
    // The place of a subscription that does not exist.
    await db.delete(sweepPositions);
  });
});

test("the log has how many a sweep has woken and deleted, and no line if there were none", async () => {
  await db.delete(deliveries);
  const logged = async () => {
    lines.length = 0;
    await sweep(isolated().env, NOW);
    const all: { event: string }[] = lines.map((line) => JSON.parse(line));
    return all.filter(({ event }) => event.startsWith("sweep_"));
  };
  await logged();
  const overdue = await owed(2, NOW - HOUR_MS);
  const expired = await owed(3, NOW - 40 * DAY_MS);
  await dispatchAt(NOW - 40 * DAY_MS, [expired.id], answered(200));
  const figures = await logged();
  expect(figures).toHaveLength(2);
  expect(figures).toContainEqual({ event: "sweep_requeued", subscriptions: 1 });
  expect(figures).toContainEqual({ event: "sweep_deleted", events: 3 });
  await dispatchAt(NOW, [overdue.id], answered(200));
  expect(await logged()).toEqual([]);
});

describe("a job of the sweep that fails", () => {
  /** Something to do for each job of the sweep. */
  async function work() {
    const overdue = await owed(1, NOW - HOUR_MS);
    const expired = await owed(1, NOW - 40 * DAY_MS);
    await dispatchAt(NOW - 40 * DAY_MS, [expired.id], answered(200));
    const disabled = await owed(10, NOW - 100 * HOUR_MS);
    await setSubscription(disabled.id, failingSince(NOW - 100 * HOUR_MS, 9));
    await dispatchAt(NOW - HOUR_MS, [disabled.id], answered(500));
    const removed = await recordRemoved();
    return { overdue, expired, disabled, removed };
  }

  test.each([
    ["waking", /^\s*WITH RECURSIVE with_pending(?!.* AS isOver).* AS subscriptionId/is],
    ["the retention", /DELETE FROM "?events/i],
  ])("does not stop the others, and the sweep then throws: %s", async (part, query) => {
    const { overdue, expired, disabled, removed } = await work();
    const { DB } = observedDatabase({
      before: (_, texts) => {
        if (texts.some((text) => query.test(text))) throw BROKEN;
      },
    });
    const deployment = isolated({ DB });
    await expect(sweep(deployment.env, NOW)).rejects.toThrow("1 jobs of the sweep failed");
    expect(to(overdue.id, deployment.fast)).toHaveLength(part === "waking" ? 0 : 1);
    const about = deployment.emails.flatMap(({ subscriptionIds }) => subscriptionIds);
    expect(about).toContain(disabled.id);
    expect(await statesOf(expired.id)).toEqual(part === "the retention" ? { delivered: 1 } : {});
    const row = env.DB.prepare("SELECT 1 FROM automations WHERE id = ?").bind(removed);
    expect(await row.first()).toBeNull();
  });
});
