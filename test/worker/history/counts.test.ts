import { eq, sql } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import { RETRY_WAITS_SECONDS } from "../../../src/contract/limits.ts";
import { qb } from "../../../src/db/builder.ts";
import { commit, connect, prepared } from "../../../src/db/client.ts";
import { deliveries, subscriptions } from "../../../src/db/schema.ts";
import {
  countAttempts,
  countsToAdd,
  type EndedAttempt,
  WITH_ADDED_COUNTS,
} from "../../../src/delivery/attempts.ts";
import { toDays } from "../../../src/history/counts.ts";
import { Platform } from "../../support/api.ts";
import {
  announceLeads,
  answered,
  DAY_MS,
  dispatchAt,
  dispatchOn,
  failAtTrip,
  jumpTo,
  MINUTE_MS,
  observedDatabase,
  owed,
  setDeliveries,
  setSubscription,
  statesOf,
  subscriptionRow,
} from "../../support/deliveries.ts";
import { db, WORKSPACE_DB } from "../../support/placement.ts";

const TODAY = Date.UTC(2026, 10, 21);
const NOW = TODAY + 15 * 3_600_000;

const addAll = prepared(
  qb
    .update(subscriptions)
    .set({ dailyCounts: WITH_ADDED_COUNTS })
    .where(eq(subscriptions.id, sql.placeholder("id"))),
);
/** Adds the counts of attempts to a subscription, whatever they are of. */
const addTo = (id: string, attempts: EndedAttempt[], now = NOW) =>
  commit(connect(WORKSPACE_DB), addAll({ id, ...countsToAdd(countAttempts(attempts), now) }));

const daysOf = async (id: string, now = NOW) =>
  toDays((await subscriptionRow(id)).dailyCounts, now);

const DELIVERED = {
  type: "lead.created",
  state: "delivered",
  outcome: "answered",
  startedAt: NOW,
  durationMs: 80,
} as const;

describe("the counts of a subscription's days", () => {
  test("show how its attempts ended, by event type", async () => {
    const { id, workspaceId } = await owed(3, NOW);
    await dispatchAt(NOW, [id], answered(200));
    await announceLeads(workspaceId, 1, NOW);
    await dispatchAt(NOW, [id], answered(400));
    await setDeliveries(id, { stepsUsed: RETRY_WAITS_SECONDS.length, dueAt: NOW });
    await dispatchAt(NOW + MINUTE_MS, [id], answered(400));
    const outcomes = { delivered: 3, failed: 1, exhausted: 1 };
    expect((await daysOf(id)).at(-1)).toMatchObject({
      date: "2026-11-21",
      ...outcomes,
      types: [{ type: "lead.created", ...outcomes }],
    });
    expect(await statesOf(id)).toEqual({ delivered: 3, exhausted: 1 });
  });

  test("are the last seven, oldest first, and zero where there was no attempt", async () => {
    const { id } = await owed(0, NOW);
    for (const daysAgo of [7, 6, 0])
      await addTo(id, [{ ...DELIVERED, startedAt: NOW - daysAgo * DAY_MS }]);
    const days = await daysOf(id);
    expect(days.map(({ delivered }) => delivered)).toEqual([1, 0, 0, 0, 0, 0, 1]);
    expect(days.map(({ date }) => date.slice(8))).toEqual([
      ...["15", "16", "17", "18", "19", "20", "21"],
    ]);
    expect(days[1]).toEqual({
      date: "2026-11-16",
      delivered: 0,
      failed: 0,
      exhausted: 0,
      types: [],
      medianMs: null,
      p95Ms: null,
    });
  });

  test("count an attempt on the day on which it ended", async () => {
    const { id } = await owed(0, NOW);
    await addTo(id, [
      { ...DELIVERED, startedAt: TODAY - 100, durationMs: 99 },
      { ...DELIVERED, startedAt: TODAY - 100, durationMs: 100 },
    ]);
    expect((await daysOf(id)).slice(-2)).toMatchObject([{ delivered: 1 }, { delivered: 1 }]);
  });

  test("add up what several transactions recorded", async () => {
    const { id } = await owed(0, NOW);
    await addTo(id, [DELIVERED, { ...DELIVERED, state: "pending" }]);
    await addTo(id, [DELIVERED, { ...DELIVERED, type: "run.completed", state: "exhausted" }]);
    expect((await daysOf(id)).at(-1)).toMatchObject({
      delivered: 2,
      failed: 1,
      exhausted: 1,
      types: [
        { type: "run.completed", delivered: 0, failed: 0, exhausted: 1 },
        { type: "lead.created", delivered: 2, failed: 1, exhausted: 0 },
      ],
    });
  });

  test("have the median and the 95th percentile of response times, as upper bounds", async () => {
    const { id } = await owed(0, NOW);
    const responded = (durationMs: number, count: number) =>
      Array.from({ length: count }, () => ({ ...DELIVERED, durationMs }));
    await addTo(id, [...responded(51, 25), ...responded(75, 25)]);
    await addTo(id, [...responded(900, 45), ...responded(12_000, 5)]);
    expect((await daysOf(id)).at(-1)).toMatchObject({ medianMs: 75, p95Ms: 1_000 });
    await addTo(id, responded(12_000, 1));
    expect((await daysOf(id)).at(-1)).toMatchObject({ medianMs: 1_000, p95Ms: 10_000 });
  });

  test("take no response time from an attempt without a response", async () => {
    const { id } = await owed(0, NOW);
    await addTo(id, [{ ...DELIVERED, state: "pending", outcome: "timed_out" }]);
    expect((await daysOf(id)).at(-1)).toMatchObject({ failed: 1, medianMs: null, p95Ms: null });
  });

  test("leave out test events", async () => {
    const { id } = await owed(0, NOW);
    await Platform.sendTestEvent({ webhookId: id, type: "lead.created" });
    const { days } = await Platform.readWebhook({ webhookId: id });
    expect(days.at(-1)).toMatchObject({ delivered: 0, failed: 0, exhausted: 0 });
  });

  test("are shown by readWebhook, up to today", async () => {
    const now = Date.now();
    jumpTo(now);
    const { id } = await owed(1, now);
    await dispatchAt(now, [id], answered(200));
    const { days } = await Platform.readWebhook({ webhookId: id });
    expect(days).toHaveLength(7);
    expect(days.at(-1)).toMatchObject({ delivered: 1 });
  });
});

test("an attempt counts once, although the event of another is erased before its round is repeated", async () => {
  const { id, drafts } = await owed(2, NOW);
  const { DB } = observedDatabase({
    async before(trip) {
      const [, erased] = drafts;
      if (trip === 3) await db.delete(deliveries).where(eq(deliveries.eventId, erased?.id ?? ""));
    },
    after: failAtTrip(2),
  });
  // Both outcomes are recorded in one round.
  await setSubscription(id, { concurrency: 2 });
  await dispatchOn(DB, NOW, [id], answered(200));
  expect(await statesOf(id)).toEqual({ delivered: 1 });
  expect((await daysOf(id)).at(-1)).toMatchObject({ delivered: 2 });
});

test("days that are no longer shown are no longer stored, and the others stay", async () => {
  const { id } = await owed(0, NOW);
  for (const daysAgo of [7, 6, 5])
    await addTo(id, [{ ...DELIVERED, startedAt: NOW - daysAgo * DAY_MS }], NOW - DAY_MS);
  expect(Object.keys((await subscriptionRow(id)).dailyCounts)).toHaveLength(3);
  await addTo(id, [DELIVERED]);
  const { dailyCounts } = await subscriptionRow(id);
  expect(Object.keys(dailyCounts)).toEqual(["2026-11-15", "2026-11-16", "2026-11-21"]);
});
