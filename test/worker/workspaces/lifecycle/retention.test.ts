import { env } from "cloudflare:workers";
import { sql } from "drizzle-orm";
import { beforeEach, describe, expect, test } from "vitest";
import { type Database, openDatabase } from "../../../../src/db/client.ts";
import { attempts, deliveries, events } from "../../../../src/db/schema.ts";
import { findPosition } from "../../../../src/db/sweep-positions.ts";
import {
  deleteExpired,
  parseRetention,
  type Retention,
} from "../../../../src/workspaces/lifecycle/retention.ts";
import {
  announceLeads,
  answered,
  createWorkspace,
  DAY_MS,
  db,
  deliveriesTo,
  dispatchAt,
  endWait,
  failAt,
  HOUR_MS,
  MINUTE_MS,
  observedDatabase,
  owed,
  redeliver,
  setDeliveries,
  statesOf,
  subscribe,
} from "../../../support/deliveries.ts";
import { meteredDatabase } from "../../../support/metered-database.ts";

const T0 = Date.UTC(2026, 0, 5, 12);
const OK = answered(200);
const KEPT: Retention = { deliveredMs: 10 * DAY_MS, undeliveredMs: 20 * DAY_MS };
/** Events are checked when they are an hour older than their retention. */
const LOOKED = T0 + KEPT.deliveredMs + HOUR_MS + 1;

function sweepAt(now: number, database: Database = db, hasTime = () => true) {
  return deleteExpired(database, KEPT, now, hasTime);
}

function eventsIn(workspaceId: string) {
  return db.select().from(events).where(sql`workspace_id = ${workspaceId}`);
}

/** When the only event of a workspace expires. */
async function expiryIn(workspaceId: string) {
  const [event, ...others] = await eventsIn(workspaceId);
  expect(others).toEqual([]);
  return event?.expiresAt;
}

beforeEach(async () => {
  await db.delete(deliveries);
  await db.delete(events);
});

describe("an event", () => {
  test("that was delivered in time is deleted after its retention, with its deliveries, and never gets its own expiry", async () => {
    const { id, workspaceId } = await owed(1, T0);
    await failAt(id, [T0]);
    await endWait(id);
    await dispatchAt(T0 + MINUTE_MS, [id], OK);
    expect(await sweepAt(LOOKED - 1)).toBe(0);
    expect(await expiryIn(workspaceId)).toBeNull();
    expect(await sweepAt(LOOKED)).toBe(1);
    expect([await eventsIn(workspaceId), await deliveriesTo(id)]).toEqual([[], []]);
    expect(await db.select().from(attempts).where(sql`subscription_id = ${id}`)).toEqual([]);
  });

  test.each([
    ["delivered late", "delivered", 5 * DAY_MS, KEPT.deliveredMs],
    ["exhausted", "exhausted", 1, KEPT.undeliveredMs],
    ["cancelled", "cancelled", 1, KEPT.undeliveredMs],
  ] as const)(
    "that was %s gets its own expiry, and is deleted then",
    async (_, state, ms, kept) => {
      const { id, workspaceId } = await owed(1, T0);
      await setDeliveries(id, { state, settledAt: T0 + ms });
      const expiry = T0 + ms + kept;
      expect(await sweepAt(LOOKED)).toBe(0);
      expect(await expiryIn(workspaceId)).toBe(expiry);
      expect(await sweepAt(expiry - 1)).toBe(0);
      expect(await sweepAt(expiry)).toBe(1);
      expect(await deliveriesTo(id)).toEqual([]);
    },
  );

  test("is kept while a delivery is pending, and checked once a day", async () => {
    const { id, workspaceId } = await owed(1, T0);
    for (let day = 0; day < 3; day++) {
      expect(await sweepAt(LOOKED + day * DAY_MS)).toBe(0);
      expect(await expiryIn(workspaceId)).toBe(LOOKED + (day + 1) * DAY_MS);
    }
    const settledAt = LOOKED + 2 * DAY_MS + 1;
    await setDeliveries(id, { dueAt: settledAt });
    await dispatchAt(settledAt, [id], OK);
    await sweepAt(LOOKED + 3 * DAY_MS);
    expect(await expiryIn(workspaceId)).toBe(settledAt + KEPT.deliveredMs);
    expect(await sweepAt(settledAt + KEPT.deliveredMs)).toBe(1);
  });

  test("is kept if it is redelivered while it expires", async () => {
    const { id, drafts } = await owed(1, T0);
    await dispatchAt(T0, [id], OK);
    const { DB } = observedDatabase({
      before: async (_, texts) => {
        if (texts.some((text) => /^delete from "events"/i.test(text)))
          await redeliver(id, [drafts[0]?.id ?? ""], LOOKED);
      },
    });
    expect(await sweepAt(LOOKED, openDatabase(DB))).toBe(0);
    expect(await statesOf(id)).toEqual({ pending: 1 });
  });

  test("is kept as long as one of several subscriptions needs it", async () => {
    const workspaceId = await createWorkspace();
    const [done, exhausted] = [await subscribe(workspaceId), await subscribe(workspaceId)];
    await announceLeads(workspaceId, 1, T0);
    await dispatchAt(T0, [done.id], OK);
    await setDeliveries(exhausted.id, { state: "exhausted", settledAt: T0 + 4 * DAY_MS });
    await sweepAt(LOOKED);
    expect(await expiryIn(workspaceId)).toBe(T0 + 4 * DAY_MS + KEPT.undeliveredMs);
    expect(await deliveriesTo(done.id)).toHaveLength(1);
  });
});

describe("a sweep of events", () => {
  const EXPIRED = LOOKED + DAY_MS;

  async function delivered(count: number) {
    const workspaceId = await createWorkspace();
    const { id } = await subscribe(workspaceId);
    await announceLeads(workspaceId, count, T0);
    await setDeliveries(id, { state: "delivered", settledAt: T0 });
    return { workspaceId, id };
  }

  test("deletes 3,000 at once", async () => {
    const { workspaceId, id } = await delivered(3_000);
    expect(await sweepAt(EXPIRED)).toBe(3_000);
    expect([await eventsIn(workspaceId), await deliveriesTo(id)]).toEqual([[], []]);
    expect(await findPosition(db, "retention")).toBe("");
  });

  test("stops when its time is up, and the next one continues", async () => {
    const workspaces = await Promise.all([1, 2, 3].map(() => delivered(2)));
    const order = workspaces.map(({ workspaceId }) => workspaceId).toSorted();
    let asked = 0;
    // Called before each step: time is up in the first workspace.
    const stopped = await sweepAt(EXPIRED, db, () => ++asked <= 4);
    expect(stopped).toBeGreaterThan(0);
    expect(stopped).toBeLessThan(6);
    expect(order).toContain(await findPosition(db, "retention"));
    expect(stopped + (await sweepAt(EXPIRED))).toBe(6);
    expect(await findPosition(db, "retention")).toBe("");
  });

  test("comes back in the time that the others leave to what it had no time for", async () => {
    const workspaces = await Promise.all([1, 2, 3].map(() => delivered(2_000)));
    const inOrder = workspaces.toSorted((a, b) => (a.workspaceId < b.workspaceId ? -1 : 1));
    const left = () =>
      Promise.all(inOrder.map(async (one) => (await eventsIn(one.workspaceId)).length / 1_000));
    /** A sweep that has time to delete so many thousands. */
    const sweepFor = async (thousands: number) => {
      let deletions = 0;
      const { DB } = observedDatabase({
        before: async (_, texts) => {
          if (texts.some((text) => /delete from "events"/i.test(text))) deletions++;
        },
      });
      await sweepAt(EXPIRED, openDatabase(DB), () => deletions < thousands);
      return left();
    };
    expect(await sweepFor(1)).toEqual([1, 2, 2]);
    expect(await sweepFor(1)).toEqual([1, 1, 2]);
    expect(await sweepFor(3)).toEqual([0, 1, 0]);
    expect(await sweepFor(1)).toEqual([0, 0, 0]);
  });

  test("goes on behind a workspace that fails, and fails as long as that does", async () => {
    const workspaces = await Promise.all([1, 2, 3].map(() => delivered(1)));
    const ids = workspaces.map(({ workspaceId }) => workspaceId).sort();
    await env.DB.exec(
      `CREATE TRIGGER fails BEFORE DELETE ON events WHEN OLD.workspace_id = '${ids[1]}' BEGIN SELECT RAISE(ABORT, 'it fails'); END`,
    );
    for (const expected of [1, 0]) {
      await expect(sweepAt(EXPIRED)).rejects.toThrow();
      const left = ids.map(async (id) => (await eventsIn(id)).length);
      expect(await Promise.all(left)).toEqual([0, 1, expected]);
    }
    await env.DB.exec("DROP TRIGGER fails");
    expect(await sweepAt(EXPIRED)).toBe(1);
  });

  test("does not read again what it cannot delete", async () => {
    const { id, workspaceId } = await owed(200, T0);
    await setDeliveries(id, { state: "exhausted", settledAt: T0 });
    const rowsAt = async (now: number) => {
      const { DB, rows } = meteredDatabase();
      expect(await sweepAt(now, openDatabase(DB))).toBe(0);
      return rows;
    };
    expect((await rowsAt(LOOKED)).read).toBeGreaterThan(200);
    const again = await rowsAt(LOOKED + HOUR_MS);
    // The workspaces of this file, and the stored position.
    expect(again.read).toBeLessThan(100);
    expect(again.written).toBe(0);
    // Nor when newer events have become old.
    await announceLeads(workspaceId, 1, T0 + HOUR_MS);
    const later = await rowsAt(LOOKED + 2 * HOUR_MS);
    expect(later.written).toBeGreaterThan(0);
    expect(later.read).toBeLessThan(150);
  });
});

test.each(["", "0", "-1", "thirty"])("a retention of %j days is refused, not applied", (days) => {
  for (const name of ["DELIVERED_KEPT_DAYS", "UNDELIVERED_KEPT_DAYS"])
    expect(() => parseRetention({ ...env, [name]: days })).toThrow(
      `${name} is not a number of days`,
    );
});
