import { sql } from "drizzle-orm";
import { describe, expect, test } from "vitest";
import { subscriptions } from "../../src/db/schema.ts";
import type { Claimed } from "../../src/model/deliveries.ts";
import {
  answered,
  db,
  deliveryTo,
  HOUR_MS,
  heldRun,
  MINUTE_MS,
  noticesOf,
  owed,
  runAt,
  subscriber,
  subscriptionRow,
} from "../support/deliveries.ts";

const NOW = Date.UTC(2026, 0, 5, 12);
const OK = answered(200);

describe("a lease", () => {
  test("lasts a minute, in which nobody else posts what it holds", async () => {
    const { id } = await owed(1, NOW);
    const { posts, attempt } = subscriber();
    await runAt(NOW, [id], async () => {
      const { claim, dueAt, state } = await deliveryTo(id);
      expect([state, dueAt]).toEqual(["pending", NOW + MINUTE_MS]);
      expect(claim).not.toBeNull();
      for (const now of [NOW, NOW + MINUTE_MS - 1]) await runAt(now, [id], attempt);
      return OK;
    });
    expect(posts).toEqual([]);
    expect(await deliveryTo(id)).toMatchObject({ state: "delivered", attempts: 1 });
  });

  test("that has expired is taken by another run, with the same id and bytes", async () => {
    const { id, drafts } = await owed(1, NOW);
    const claimed: Claimed[] = [];
    const abandoned = new Promise<never>(() => {});
    runAt(NOW, [id], (delivery) => {
      claimed.push(delivery);
      return abandoned;
    });
    await expect.poll(() => claimed.length).toBe(1);
    await runAt(NOW + MINUTE_MS, [id], async (delivery) => {
      claimed.push(delivery);
      return OK;
    });
    expect(claimed.map(({ eventId, body, attempts }) => ({ id: eventId, body, attempts }))).toEqual(
      [
        { id: drafts[0]?.id, body: drafts[0]?.body, attempts: 0 },
        { id: drafts[0]?.id, body: drafts[0]?.body, attempts: 0 },
      ],
    );
    expect(await deliveryTo(id)).toMatchObject({ state: "delivered", attempts: 1 });
  });

  test("that was lost settles nothing: not the delivery, nor the subscription's health", async () => {
    const { id } = await owed(1, NOW);
    const later = NOW + MINUTE_MS;
    await runAt(NOW, [id], async () => {
      await runAt(later, [id], OK);
      return answered(500);
    });
    expect(await deliveryTo(id)).toMatchObject({
      state: "delivered",
      attempts: 1,
      lastStatus: 200,
      settledAt: later,
    });
    expect(await subscriptionRow(id)).toMatchObject({ failures: 0, failingSince: null });
  });

  test("that was lost makes no delivered of what another run holds", async () => {
    const { id } = await owed(1, NOW);
    const later = NOW + MINUTE_MS;
    await runAt(NOW, [id], async () => {
      await runAt(later, [id], answered(503));
      return OK;
    });
    expect(await deliveryTo(id)).toMatchObject({
      state: "pending",
      attempts: 1,
      lastStatus: 503,
      dueAt: later + 10_000,
    });
    expect(await subscriptionRow(id)).toMatchObject({ failures: 1, failingSince: later });
  });

  test.each([
    ["succeeded, too", OK],
    ["failed", answered(500)],
  ])(
    "that was lost disables nobody, when the run that has it now succeeds: it %s",
    async (_, outcome) => {
      const { id } = await owed(1, NOW);
      await db
        .update(subscriptions)
        .set({ failures: 10, failingSince: NOW - 75 * HOUR_MS })
        .where(sql`id = ${id}`);
      const late = await heldRun(NOW, id);
      const inTime = await heldRun(NOW + MINUTE_MS, id);
      await late.finish(outcome);
      await inTime.finish(OK);
      expect(await deliveryTo(id)).toMatchObject({ state: "delivered", attempts: 1 });
      expect(await subscriptionRow(id)).toMatchObject({
        disabledAt: null,
        failures: 0,
        failingSince: null,
      });
      expect(await noticesOf(id)).toEqual([]);
    },
  );
});
