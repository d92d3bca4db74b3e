import { exports } from "cloudflare:workers";
import { sql } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import { isoTime } from "../../../src/contract/time.ts";
import { openDatabase } from "../../../src/db/client.ts";
import { attempts } from "../../../src/db/schema.ts";
import { ATTEMPTS_KEPT } from "../../../src/webhooks/attempts.ts";
import { dispatch } from "../../../src/webhooks/dispatch/dispatch.ts";
import { listDeliveries } from "../../../src/webhooks/history.ts";
import { deleteExpired } from "../../../src/workspaces/lifecycle/retention.ts";
import { errorOf } from "../../support/api.ts";
import {
  announceLeads,
  answered,
  createWorkspace,
  DAY_MS,
  db,
  deliveriesTo,
  dispatchAt,
  endWait,
  FIRST_WAIT_MS,
  failAt,
  HOUR_MS,
  MINUTE_MS,
  observedDatabase,
  owed,
  setDeliveries,
  setSubscription,
  subscribe,
  toolsAt,
} from "../../support/deliveries.ts";
import { meteredDatabase } from "../../support/metered-database.ts";

const T0 = Date.UTC(2026, 0, 5, 12);
const { Platform } = exports;

/** A clock that an attempt advances by `durationMs`. */
function taking(durationMs: number, status = 200, startsAt = T0) {
  let now = startsAt;
  const attempt = async () => {
    now += durationMs;
    return answered(status);
  };
  return { now: () => now, attempt };
}

function attemptsOf(subscriptionId: string) {
  return db.select().from(attempts).where(sql`subscription_id = ${subscriptionId}`);
}

describe("listWebhooks", () => {
  test("shows a subscription that nothing was sent to", async () => {
    const workspaceId = await createWorkspace();
    const { id, url } = await subscribe(workspaceId, { createdAt: T0 });
    expect(await Platform.listWebhooks({ workspaceId })).toEqual({
      items: [
        {
          webhookId: id,
          url,
          description: null,
          events: ["lead.created"],
          createdAt: isoTime(T0),
          disabledAt: null,
          state: "healthy",
          failingSince: null,
          failures: 0,
          pending: 0,
          nextAttemptAt: null,
          lastAttempt: null,
          overlapEndsAt: null,
        },
      ],
      nextCursor: null,
    });
  });

  test("shows no next attempt at a disabled one, even if deliveries remain to be cancelled", async () => {
    const { id, workspaceId } = await owed(1, T0);
    await setSubscription(id, { disabledAt: T0 });
    const { items } = await Platform.listWebhooks({ workspaceId });
    expect(items).toMatchObject([{ state: "disabled", pending: 1, nextAttemptAt: null }]);
  });

  test("shows how the last attempt at a healthy one ended, and how long it took", async () => {
    const { id, workspaceId } = await owed(3, T0);
    // Nothing follows from one more success.
    await setSubscription(id, { postsAtOnce: 6 });
    const { now, attempt } = taking(120, 204);
    await dispatchAt(now, [id], attempt);
    const { items } = await Platform.listWebhooks({ workspaceId });
    const lastAttempt = { outcome: "answered", status: 204, durationMs: 120 };
    expect(items).toMatchObject([{ state: "healthy", pending: 0, lastAttempt }]);
    expect(Date.parse(items[0]?.lastAttempt?.at ?? "")).toBeGreaterThanOrEqual(T0);
  });

  test("shows since when one has been failing, what is pending, and when it is tried next", async () => {
    const { id, workspaceId } = await owed(3, T0);
    await failAt(id, [T0]);
    expect(await Platform.listWebhooks({ workspaceId })).toMatchObject({
      items: [
        {
          state: "failing",
          failingSince: isoTime(T0),
          failures: 1,
          pending: 3,
          nextAttemptAt: isoTime(T0 + FIRST_WAIT_MS),
          lastAttempt: { at: isoTime(T0), outcome: "answered", status: 503, durationMs: 0 },
        },
      ],
    });
  });

  test("shows a subscription as slow if its last answer was", async () => {
    const { id, workspaceId } = await owed(1, T0);
    const { now, attempt } = taking(3_000);
    await dispatchAt(now, [id], attempt);
    const { items } = await Platform.listWebhooks({ workspaceId });
    expect(items).toMatchObject([{ state: "slow", lastAttempt: { durationMs: 3_000 } }]);
  });

  test("shows disabled ones, newest first, but no deleted ones", async () => {
    const workspaceId = await createWorkspace();
    const [older, newer, deleted] = [
      await subscribe(workspaceId, { createdAt: T0 }),
      await subscribe(workspaceId, { createdAt: T0 + 1 }),
      await subscribe(workspaceId, { createdAt: T0 + 2 }),
    ];
    await setSubscription(older.id, { disabledAt: T0 + 5 });
    await setSubscription(deleted.id, { deletedAt: T0 + 5 });
    const { items } = await Platform.listWebhooks({ workspaceId });
    expect(items.map(({ webhookId, state }) => [webhookId, state])).toEqual([
      [newer.id, "healthy"],
      [older.id, "disabled"],
    ]);
    expect(items[1]?.disabledAt).toBe(isoTime(T0 + 5));
  });

  test("shows no secret, and nothing of another workspace", async () => {
    const workspaceId = await createWorkspace();
    await subscribe(await createWorkspace());
    const { secret } = await subscribe(workspaceId);
    const answer = JSON.stringify(await Platform.listWebhooks({ workspaceId }));
    expect(answer).not.toContain(secret);
    expect(JSON.parse(answer).items).toHaveLength(1);
  });
});

describe("listDeliveries", () => {
  test("returns consecutive pages, newest first, without gaps", async () => {
    const { id, drafts } = await owed(5, T0);
    const seen: string[] = [];
    let cursor: string | null | undefined;
    do {
      const page = await Platform.listDeliveries({ webhookId: id, limit: 2, cursor });
      expect(page.items.length).toBeLessThanOrEqual(2);
      seen.push(...page.items.map(({ eventId }) => eventId));
      cursor = page.nextCursor;
    } while (cursor !== null);
    const ids = drafts.map((draft) => draft.id);
    expect(seen).toEqual(ids.toSorted().reverse());
  });

  test("shows each one's kind, state, attempts, and how the last one ended", async () => {
    const { id, drafts } = await owed(1, T0);
    await failAt(id, [T0]);
    const pending = {
      eventId: drafts[0]?.id,
      type: "lead.created",
      createdAt: isoTime(T0),
      state: "pending",
      attempts: 1,
      dueAt: isoTime(T0 + FIRST_WAIT_MS),
      settledAt: null,
      lastAttempt: { at: isoTime(T0), outcome: "answered", status: 503, durationMs: 0 },
    };
    const { items } = await Platform.listDeliveries({ webhookId: id });
    expect(items).toEqual([pending]);
    const { now, attempt } = taking(80, 202, T0 + MINUTE_MS);
    await dispatchAt(now, [id], attempt);
    const later = await Platform.listDeliveries({ webhookId: id });
    const again = isoTime(T0 + MINUTE_MS);
    expect(later.items).toEqual([
      {
        ...pending,
        state: "delivered",
        attempts: 2,
        dueAt: null,
        settledAt: isoTime(T0 + MINUTE_MS + 80),
        lastAttempt: { ...pending.lastAttempt, at: again, status: 202, durationMs: 80 },
      },
    ]);
  });

  test("can be filtered by state and kind", async () => {
    const { id, drafts } = await owed(3, T0);
    await setDeliveries(id, { state: "exhausted" }, drafts[1]?.id);
    const listed = async (filter: object) => {
      const { items } = await Platform.listDeliveries({ webhookId: id, ...filter });
      return items.length;
    };
    expect(await listed({ state: "exhausted" })).toBe(1);
    expect(await listed({ state: "pending" })).toBe(2);
    expect(await listed({ type: "lead.created" })).toBe(3);
    expect(await listed({ type: "run.completed", state: "pending" })).toBe(0);
  });

  test("reads the rows of its page plus one, however many there are", async () => {
    const { id } = await owed(60, T0);
    const { DB, rows } = meteredDatabase();
    const request = { limit: 10, after: null };
    const page = await listDeliveries(openDatabase(DB), id, {}, request);
    expect(page.items).toHaveLength(10);
    // The subscription, twice, and eleven deliveries with their events.
    expect(rows.read).toBeLessThanOrEqual(2 + 2 * 11);
  });

  test.each([
    ["webhookId", { webhookId: "whk_none" }],
    ["limit", { webhookId: "whk_none", limit: 101 }],
    ["cursor", { webhookId: "whk_none", cursor: "nonsense" }],
    ["state", { webhookId: "whk_none", state: "lost" as "pending" }],
  ])("says that %s is wrong", async (parameter, input) => {
    expect(await errorOf(Platform.listDeliveries(input))).toContain(parameter);
  });
});

describe("readDelivery", () => {
  test("returns the exact body and every attempt", async () => {
    const { id, drafts } = await owed(1, T0);
    const [draft] = drafts;
    const timedOut = { kind: "timed_out" } as const;
    await dispatchAt(T0, [id], answered(500));
    await dispatchAt(T0 + MINUTE_MS, [id], timedOut);
    await dispatchAt(T0 + HOUR_MS, [id], answered(200));
    const delivery = await Platform.readDelivery({ webhookId: id, eventId: draft?.id ?? "" });
    expect(delivery).toMatchObject({
      eventId: draft?.id,
      state: "delivered",
      attempts: 3,
      body: draft?.body,
      attemptLog: [
        { at: isoTime(T0), outcome: "answered", status: 500, durationMs: 0 },
        { at: isoTime(T0 + MINUTE_MS), outcome: "timed_out", status: null, durationMs: 0 },
        { at: isoTime(T0 + HOUR_MS), outcome: "answered", status: 200, durationMs: 0 },
      ],
    });
  });

  test("returns the first attempts and the last, however often it was sent again", async () => {
    const { id, drafts } = await owed(1, T0);
    const eventId = drafts[0]?.id ?? "";
    const last = { attempt: ATTEMPTS_KEPT - 1, at: T0 + ATTEMPTS_KEPT - 2 };
    const outcome = { outcome: "answered", status: 500, durationMs: 1 } as const;
    await db.insert(attempts).values({ subscriptionId: id, eventId, ...last, ...outcome });
    for (const [i, status] of [501, 502, 503].entries()) {
      await endWait(id);
      await dispatchAt(T0 + (i + 1) * HOUR_MS, [id], answered(status));
    }
    const { attemptLog } = await Platform.readDelivery({ webhookId: id, eventId });
    expect(attemptLog.map(({ at, status }) => [at, status])).toEqual([
      [isoTime(T0 + ATTEMPTS_KEPT - 2), 500],
      [isoTime(T0 + 3 * HOUR_MS), 503],
    ]);
  });

  test("says which of the two is unknown, and shows none of another subscription", async () => {
    const { id, drafts } = await owed(1, T0);
    const eventId = drafts[0]?.id ?? "";
    const other = await subscribe(await createWorkspace());
    const ask = (webhookId: string, event: string) =>
      errorOf(Platform.readDelivery({ webhookId, eventId: event }));
    expect(await ask("whk_none", eventId)).toContain("webhookId");
    expect(await ask(id, "evt_none")).toContain("eventId");
    expect(await ask(other.id, eventId)).toContain("eventId");
  });
});

describe("an attempt", () => {
  test("that succeeds writes no row other than its delivery's", async () => {
    const { id } = await owed(4, T0);
    await dispatchAt(T0, [id], answered(200));
    expect(await attemptsOf(id)).toEqual([]);
  });

  test("that fails is recorded once, even if the database's reply was lost", async () => {
    const { id } = await owed(1, T0);
    let lost = 0;
    const { DB } = observedDatabase({
      after: () => {
        if (lost++ === 1) throw new Error("D1_ERROR: Network connection lost.");
      },
    });
    await dispatch(openDatabase(DB), [id], "fast", toolsAt(T0, answered(500)));
    expect(lost).toBeGreaterThan(1);
    expect(await attemptsOf(id)).toMatchObject([{ attempt: 1, at: T0, status: 500 }]);
    expect(await deliveriesTo(id)).toMatchObject([{ attempts: 1, lastAt: T0 }]);
  });

  test("is deleted with its event", async () => {
    const { id, workspaceId } = await owed(1, T0);
    await failAt(id, [T0]);
    await dispatchAt(T0 + MINUTE_MS, [id], answered(200));
    const kept = await announceLeads(workspaceId, 1, T0 + 40 * DAY_MS);
    await dispatchAt(T0 + 40 * DAY_MS, [id], answered(500));
    const retention = { deliveredMs: 30 * DAY_MS, undeliveredMs: 30 * DAY_MS };
    await deleteExpired(db, retention, T0 + 41 * DAY_MS, () => true);
    expect(await attemptsOf(id)).toMatchObject([{ eventId: kept[0]?.id }]);
  });
});
