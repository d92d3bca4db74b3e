import { beforeAll, describe, expect, test } from "vitest";
import { isoTime } from "../../../src/contract/time.ts";
import { attempts } from "../../../src/db/schema.ts";
import { ATTEMPTS_KEPT } from "../../../src/delivery/attempts.ts";
import { ROTATION_MS } from "../../../src/subscriptions/rotation.ts";
import { leadReport, openWorkspace, Platform } from "../../support/api.ts";
import {
  allowProbes,
  announceLeads,
  answered,
  createWorkspace,
  deliveryTo,
  dispatchAt,
  failAt,
  HOUR_MS,
  MINUTE_MS,
  owed,
  redeliver,
  setDeliveries,
  setSubscription,
  subscribe,
  subscriptionRow,
} from "../../support/deliveries.ts";
import { db, useThreeDatabases } from "../../support/placement.ts";

useThreeDatabases();

const T0 = Date.UTC(2026, 0, 5, 12);

/** Dispatches at `startsAt`, with attempts that take `durationMs`. */
function taking(durationMs: number, ids: string[], status = 200, startsAt = T0) {
  let now = startsAt;
  const attempt = async () => {
    now += durationMs;
    return answered(status);
  };
  return dispatchAt(() => now, ids, attempt);
}

/** A delivery has failed. */
const FAILED = { lastFailure: { status: 503 } };

describe("listWebhooks", () => {
  test("shows, newest first, how a subscription fares: new, failing, answering, slow and disabled", async () => {
    const workspaceId = await createWorkspace();
    await subscribe(workspaceId, { createdAt: T0 - 1 });
    const { id, url } = await subscribe(workspaceId, { createdAt: T0 });
    const shown = async () => {
      const [{ days, ...health } = { days: [] }] = (await Platform.listWebhooks({ workspaceId }))
        .items;
      expect(days).toHaveLength(7);
      return health;
    };
    const fresh = {
      webhookId: id,
      url,
      description: null,
      headers: [],
      keyId: null,
      rejected: [],
      events: ["lead.created"],
      createdAt: isoTime(T0),
      disabledAt: null,
      state: "healthy",
      failingSince: null,
      failures: 0,
      pendingExhaustedAt: null,
      responseLimitReached: false,
      successRate: null,
      nextAttemptAt: null,
      lastAttempt: null,
      lastFailure: null,
      overlapEndsAt: null,
    };
    expect(await shown()).toEqual(fresh);
    await announceLeads(workspaceId, 3, T0);
    await failAt(id, [T0]);
    const lastAttempt = { at: isoTime(T0), outcome: "answered", status: 503, durationMs: 0 };
    const nextAttemptAt = isoTime(T0 + 1_000);
    const failing = { state: "failing", failingSince: isoTime(T0), failures: 1, nextAttemptAt };
    expect(await shown()).toMatchObject({ ...fresh, ...failing, ...FAILED, lastAttempt });
    const last = async (status: number, durationMs: number) => {
      await setDeliveries(id, { state: "cancelled" });
      await announceLeads(workspaceId, 1, T0);
      await setSubscription(id, { circuits: {}, concurrency: 6 });
      await taking(durationMs, [id], status);
      return { ...lastAttempt, status, durationMs };
    };
    const healthy = await last(204, 120);
    expect(await shown()).toEqual({ ...fresh, lastAttempt: healthy });
    // Nothing else follows from one more success.
    const again = await last(202, 90);
    expect(await shown()).toEqual({ ...fresh, lastAttempt: again });
    const slow = await last(200, 3_000);
    expect(await shown()).toEqual({ ...fresh, state: "slow", lastAttempt: slow });
    await announceLeads(workspaceId, 1, T0);
    await setSubscription(id, { disabledAt: T0 });
    const disabled = { state: "disabled", disabledAt: isoTime(T0) };
    expect(await shown()).toMatchObject({ ...disabled, nextAttemptAt: null });
  });
});

describe("listDeliveries", () => {
  test("shows each one's kind, state, attempts, and how the last one ended", async () => {
    const { id, drafts } = await owed(1, T0);
    await failAt(id, [T0]);
    const pending = {
      eventId: drafts[0]?.id,
      type: "lead.created",
      subject: "Zoë “0” 🌻",
      createdAt: isoTime(T0),
      state: "retrying",
      attempts: 1,
      dueAt: isoTime(T0 + 1_000),
      settledAt: null,
      lastAttempt: { at: isoTime(T0), outcome: "answered", status: 503, durationMs: 0 },
    };
    const listed = async () => (await Platform.listDeliveries({ webhookId: id })).items;
    expect(await listed()).toEqual([pending]);
    await taking(80, [id], 202, T0 + MINUTE_MS);
    const at = isoTime(T0 + MINUTE_MS);
    expect(await listed()).toEqual([
      {
        ...pending,
        state: "delivered",
        attempts: 2,
        dueAt: null,
        settledAt: isoTime(T0 + MINUTE_MS + 80),
        lastAttempt: { at, outcome: "answered", status: 202, durationMs: 80 },
      },
    ]);
  });

  test("shows no status for an attempt that got no response", async () => {
    const { id } = await owed(1, T0);
    await failAt(id, [T0], { kind: "timed_out" });
    const [item] = (await Platform.listDeliveries({ webhookId: id })).items;
    expect(item?.lastAttempt).toMatchObject({ outcome: "timed_out", status: null });
  });

  let three: string;
  beforeAll(async () => {
    const { id, drafts } = await owed(3, T0);
    const answered = { lastOutcome: "answered", lastStatus: 503 };
    await setDeliveries(id, { state: "exhausted", ...answered }, drafts[1]?.id);
    await setDeliveries(id, { lastOutcome: "unreachable", lastStatus: 521 }, drafts[2]?.id);
    three = id;
  });
  test.each([
    [1, { state: "exhausted" }],
    [2, { state: "pending" }],
    [3, { type: "lead.created" }],
    [0, { type: "run.completed", state: "pending" }],
    [1, { status: 503 }],
    [0, { status: 500 }],
    [1, { status: "5xx", state: "exhausted" }],
    [0, { status: "4xx" }],
    [1, { status: "none" }],
    [3, { since: isoTime(T0), until: isoTime(T0 + 1) }],
    [0, { since: isoTime(T0 + 1) }],
    [0, { until: isoTime(T0) }],
    [0, { eventId: "evt_0000000000000000000000000" }],
    [0, { leadId: "lea_0000000000000000000000000" }],
  ] as const)("shows %i of three: %j", async (count, filter) => {
    const { items } = await Platform.listDeliveries({ webhookId: three, ...filter });
    expect(items).toHaveLength(count);
  });

  test("finds an event by its id, and the one that announced a lead by the lead's", async () => {
    const { workspaceId } = await openWorkspace();
    const { id: webhookId } = await subscribe(workspaceId);
    const leads = ["a", "b"].map((reference) => leadReport(reference));
    const { ids } = await Platform.recordLeads({ workspaceId, leads });
    const [leadId = ""] = ids;
    const found = await Platform.listDeliveries({ webhookId, leadId });
    expect(found.items).toHaveLength(1);
    const { eventId = "" } = found.items[0] ?? {};
    expect((await Platform.readDelivery({ webhookId, eventId })).body).toContain(leadId);
    const { items } = await Platform.listDeliveries({ webhookId, eventId });
    expect(items.map((one) => one.eventId)).toEqual([eventId]);
  });
});

describe("readDelivery", () => {
  test("returns the exact body and every attempt, with those before it was resent", async () => {
    const { id, drafts, workspaceId } = await owed(1, T0);
    const [draft] = drafts;
    const eventId = draft?.id ?? "";
    // Another subscription's attempts at the same event are not shown.
    const other = await subscribe(workspaceId);
    await redeliver(other.id, [eventId], T0);
    await failAt(other.id, [T0]);
    const answers = [answered(500), { kind: "timed_out" } as const, answered(200), answered(502)];
    for (const [hours, answer] of answers.entries()) {
      if (hours === 3) await redeliver(id, [eventId], T0 + 3 * HOUR_MS);
      await dispatchAt(T0 + hours * HOUR_MS, [id], answer);
    }
    expect(await deliveryTo(id)).toMatchObject({ stepsUsed: 1 });
    expect(await Platform.readDelivery({ webhookId: id, eventId })).toMatchObject({
      eventId,
      state: "retrying",
      attempts: 4,
      body: draft?.body,
      attemptLog: [500, null, 200, 502].map((status, i) => ({
        at: isoTime(T0 + i * HOUR_MS),
        outcome: status === null ? "timed_out" : "answered",
        status,
        durationMs: 0,
      })),
    });
  });

  test("lists a success although the event was resent during that attempt", async () => {
    const { id, drafts } = await owed(1, T0);
    const eventId = drafts[0]?.id ?? "";
    await failAt(id, [T0]);
    await allowProbes(id);
    const resentAt = T0 + HOUR_MS;
    await dispatchAt(resentAt, [id], async () => {
      await redeliver(id, [eventId], resentAt + 1);
      return answered(202);
    });
    const logged = async () => {
      const shown = await Platform.readDelivery({ webhookId: id, eventId });
      const { state, attempts, settledAt, attemptLog } = shown;
      return { state, attempts, settledAt, statuses: attemptLog.map(({ status }) => status) };
    };
    const resent = { state: "pending", attempts: 2, settledAt: null, statuses: [503, 202] };
    expect(await logged()).toEqual(resent);
    await dispatchAt(resentAt + 1, [id], answered(200));
    const settledAt = isoTime(resentAt + 1);
    const statuses = [503, 202, 200];
    expect(await logged()).toEqual({ state: "delivered", attempts: 3, settledAt, statuses });
  });

  test.each(["refused", "unreadable"])(
    "shows no request of an attempt that was %s",
    async (kind) => {
      const { id, drafts } = await owed(1, T0);
      const eventId = drafts[0]?.id ?? "";
      const outcome = { outcome: kind, status: null, durationMs: 1 };
      await db
        .insert(attempts)
        .values({ subscriptionId: id, eventId, attempt: 1, at: T0, ...outcome });
      const { attemptLog } = await Platform.readDelivery({ webhookId: id, eventId });
      expect(attemptLog).toMatchObject([{ outcome: kind, request: null }]);
    },
  );

  test.each([
    ["two signatures while an earlier secret signs", { until: T0 + 1 }, 2],
    ["none as its overlap ends", { until: T0 }, 0],
    ["none until two seconds later", { until: T0 - ROTATION_MS + 1 }, 0],
    ["one from then on", { until: T0 - ROTATION_MS }, 1],
    ["none in the two seconds after a rotation", { rotatedAt: T0 - ROTATION_MS + 1 }, 0],
    ["one from then on, too", { rotatedAt: T0 - ROTATION_MS }, 1],
  ])(
    "shows %s",
    async (_, {
      until,
      rotatedAt = null,
    }: { until?: number; rotatedAt?: number | null }, count) => {
      const { id, drafts } = await owed(1, T0);
      await failAt(id, [T0]);
      const { sealedSecret } = await subscriptionRow(id);
      const earlierSecrets = until === undefined ? null : [{ sealedSecret, until }];
      await setSubscription(id, { rotatedAt, earlierSecrets });
      const eventId = drafts[0]?.id ?? "";
      const { attemptLog } = await Platform.readDelivery({ webhookId: id, eventId });
      const { "X-Service-Signature": signed = "" } = attemptLog[0]?.request?.headers ?? {};
      expect(signed.match(/v1=/g) ?? []).toHaveLength(count);
    },
  );

  test("counts each attempt that it lists, even one before its time", async () => {
    const { id, drafts } = await owed(1, T0);
    const eventId = drafts[0]?.id ?? "";
    await failAt(id, [T0]);
    await redeliver(id, [eventId], T0 + 500);
    await dispatchAt(T0 + 500, [id], answered(500));
    const { attempts, attemptLog } = await Platform.readDelivery({ webhookId: id, eventId });
    expect(attemptLog.map(({ status }) => status)).toEqual([503, 500]);
    expect(attempts).toBe(2);
  });

  test("says whether its webhook is disabled", async () => {
    const { id, drafts } = await owed(1, T0);
    const delivery = { webhookId: id, eventId: drafts[0]?.id ?? "" };
    expect(await Platform.readDelivery(delivery)).toMatchObject({ isDisabled: false });
    await Platform.disableWebhook({ webhookId: id });
    expect(await Platform.readDelivery(delivery)).toMatchObject({ isDisabled: true });
  });

  test("returns the first attempts and the last, however often it was resent", async () => {
    const { id, drafts } = await owed(1, T0);
    const eventId = drafts[0]?.id ?? "";
    const last = { attempt: ATTEMPTS_KEPT - 1, at: T0 + ATTEMPTS_KEPT - 2 };
    const outcome = { outcome: "answered", status: 500, durationMs: 1 } as const;
    await db.insert(attempts).values({ subscriptionId: id, eventId, ...last, ...outcome });
    const timedOut = { kind: "timed_out" } as const;
    for (const [i, ended] of [answered(501), answered(502), timedOut].entries()) {
      await allowProbes(id);
      await dispatchAt(T0 + (i + 1) * HOUR_MS, [id], ended);
    }
    const { attemptLog } = await Platform.readDelivery({ webhookId: id, eventId });
    expect(attemptLog.map(({ at, status }) => [at, status])).toEqual([
      [isoTime(T0 + ATTEMPTS_KEPT - 2), 500],
      // It replaces one that had a status.
      [isoTime(T0 + 3 * HOUR_MS), null],
    ]);
  });
});
