import { env } from "cloudflare:workers";
import { sql } from "drizzle-orm";
import { beforeEach, describe, expect, test } from "vitest";
import { CLEANUP_MAX } from "../../../src/db/budget.ts";
import { connect, type Database } from "../../../src/db/client.ts";
import { attempts, events } from "../../../src/db/schema.ts";
import { findPosition } from "../../../src/db/sweep-positions.ts";
import { deleteExpired, parseRetention } from "../../../src/lifecycle/retention.ts";
import {
  allowProbes,
  announceLeads,
  answered,
  createWorkspace,
  DAY_MS,
  deliveriesTo,
  dispatchAt,
  failAt,
  HOUR_MS,
  MINUTE_MS,
  observedDatabase,
  owed,
  redeliver,
  setDeliveries,
  setSubscription,
  statesOf,
  subscribe,
} from "../../support/deliveries.ts";
import { meteredDatabase } from "../../support/metered-database.ts";
import { db } from "../../support/placement.ts";
import { storeEvents } from "../../support/stored-events.ts";

/** Newest events are counted at the full hour. */
const T0 = Date.UTC(2026, 0, 5, 12);
const OK = answered(200);
const KEPT = { keptMs: 10 * DAY_MS, eventsMax: 1_000_000 };
const EXPIRED = T0 + KEPT.keptMs + 1;

function sweepAt(now: number, database: Database = db, hasTime = () => true, kept = KEPT) {
  return deleteExpired(database, kept, now, hasTime);
}

/** Time for so many steps of a sweep. */
function timeFor(steps: number): () => boolean {
  let asked = 0;
  return () => ++asked <= steps;
}

const eventsIn = (workspaceId: string) =>
  db.select().from(events).where(sql`workspace_id = ${workspaceId}`);

const countIn = async (workspaceId: string) => (await eventsIn(workspaceId)).length;

/** A workspace with events, a millisecond apart. */
async function stored(count: number, state: "delivered" | "pending") {
  const workspaceId = await createWorkspace();
  const { id } = await subscribe(workspaceId);
  const ids = await storeEvents(workspaceId, id, count, T0, state);
  return { workspaceId, id, ids };
}

beforeEach(() =>
  env.DB.batch(
    ["attempts", "deliveries", "events", "subscriptions", "workspaces", "sweep_positions"].map(
      (table) => env.DB.prepare(`DELETE FROM ${table}`),
    ),
  ),
);

describe("an event", () => {
  test("is deleted with its deliveries and their attempts once it is too old", async () => {
    const { id, workspaceId } = await owed(1, T0);
    await failAt(id, [T0]);
    await allowProbes(id);
    await dispatchAt(T0 + MINUTE_MS, [id], OK);
    expect(await sweepAt(EXPIRED - 1)).toBe(0);
    expect(await sweepAt(EXPIRED)).toBe(1);
    expect([await eventsIn(workspaceId), await deliveriesTo(id)]).toEqual([[], []]);
    expect(await db.select().from(attempts)).toEqual([]);
  });

  test("is kept while one of its deliveries is pending, however old it is", async () => {
    const workspaceId = await createWorkspace();
    const [done, late] = [await subscribe(workspaceId), await subscribe(workspaceId)];
    await announceLeads(workspaceId, 1, T0);
    await dispatchAt(T0, [done.id], OK);
    expect(await sweepAt(EXPIRED + DAY_MS)).toBe(0);
    expect(await deliveriesTo(done.id)).toHaveLength(1);
    await setDeliveries(late.id, { dueAt: EXPIRED + DAY_MS });
    await dispatchAt(EXPIRED + DAY_MS, [late.id], OK);
    expect(await sweepAt(EXPIRED + DAY_MS)).toBe(1);
  });

  test("that a disabled subscription missed is kept as long, though another one got it", async () => {
    const { id, drafts, workspaceId } = await owed(1, T0);
    const missing = await subscribe(workspaceId);
    await setSubscription(missing.id, { disabledAt: T0 });
    await dispatchAt(T0, [id], OK);
    expect(await sweepAt(EXPIRED - 1)).toBe(0);
    await setSubscription(missing.id, { disabledAt: null });
    expect(await redeliver(missing.id, [drafts[0]?.id ?? ""], EXPIRED - 1)).toBe(1);
  });

  test("is kept if it is resent while it expires", async () => {
    const { id, drafts } = await owed(1, T0);
    await dispatchAt(T0, [id], OK);
    const { DB } = observedDatabase({
      before: async (_, texts) => {
        if (texts.some((text) => /^delete from "events"/i.test(text)))
          await redeliver(id, [drafts[0]?.id ?? ""], EXPIRED);
      },
    });
    expect(await sweepAt(EXPIRED, connect(DB))).toBe(0);
    expect(await statesOf(id)).toEqual({ pending: 1 });
  });
});

describe("the newest events of a workspace", () => {
  const NEWEST = { keptMs: 10 * DAY_MS, eventsMax: 3 };
  const sweepNewest = (now = T0 + HOUR_MS, hasTime = () => true, database = db) =>
    sweepAt(now, database, hasTime, NEWEST);

  test("are kept, the older ones are deleted, and other workspaces lose nothing", async () => {
    const full = await stored(5, "delivered");
    const other = await stored(3, "delivered");
    expect(await sweepNewest()).toBe(2);
    const left = (await eventsIn(full.workspaceId)).map(({ id }) => id);
    expect(left.toSorted()).toEqual(full.ids.slice(2));
    expect(await countIn(other.workspaceId)).toBe(3);
  });

  test("are counted once an hour, and on in the next sweep if there was no time", async () => {
    const workspaces = await Promise.all(Array.from({ length: 6 }, () => stored(4, "delivered")));
    expect(await sweepNewest(T0 + HOUR_MS + MINUTE_MS)).toBe(0);
    expect(await sweepNewest(T0 + HOUR_MS, timeFor(4))).toBeLessThan(6);
    await sweepNewest(T0 + HOUR_MS + MINUTE_MS);
    expect(await findPosition(db, "newest")).toBe("");
    for (const { workspaceId } of workspaces) expect(await countIn(workspaceId)).toBe(3);
  });

  test("are no reason to delete one that is pending", async () => {
    const { id, workspaceId } = await stored(2, "pending");
    const last = await storeEvents(workspaceId, id, 4, T0 + MINUTE_MS, "delivered");
    expect(await sweepNewest()).toBe(1);
    expect(await statesOf(id)).toEqual({ pending: 2, delivered: 3 });
    await setDeliveries(id, { state: "delivered" });
    expect(await sweepNewest()).toBe(2);
    expect((await eventsIn(workspaceId)).map((event) => event.id).toSorted()).toEqual(
      last.slice(-3),
    );
  });

  test("are found behind as many pending ones as one step examines", async () => {
    const { id, workspaceId } = await stored(CLEANUP_MAX, "pending");
    await storeEvents(workspaceId, id, 5, T0 + MINUTE_MS, "delivered");
    expect(await sweepNewest(T0 + HOUR_MS, timeFor(3))).toBe(0);
    expect(await sweepNewest(T0 + HOUR_MS + MINUTE_MS, timeFor(3))).toBe(2);
    expect(await statesOf(id)).toEqual({ pending: CLEANUP_MAX, delivered: 3 });
  });
});

describe("a sweep of events", () => {
  test("gives workspaces with much to delete their turns after the others", async () => {
    const count = CLEANUP_MAX + 1;
    const workspaces = await Promise.all([1, 2].map(() => stored(count, "delivered")));
    const order = workspaces.map(({ workspaceId }) => workspaceId).toSorted();
    const left = () => Promise.all(order.map(countIn));
    /** A sweep that has time for so many deletions. */
    const sweepFor = async (most: number) => {
      let deletions = 0;
      const { DB } = observedDatabase({
        before: async (_, texts) => {
          if (texts.some((text) => /delete from "events"/i.test(text))) deletions++;
        },
      });
      await sweepAt(EXPIRED + DAY_MS, connect(DB), () => deletions < most);
      return left();
    };
    expect(await sweepFor(1)).toEqual([1, count]);
    expect(await sweepFor(1)).toEqual([1, 1]);
    expect(await sweepFor(1)).toEqual([0, 0]);
  });

  test("goes on behind what cannot be deleted", async () => {
    const workspaces = await Promise.all([createWorkspace(), createWorkspace()]);
    const [first = "", second = ""] = workspaces.toSorted();
    await storeEvents(first, [""], CLEANUP_MAX, T0, "missed");
    await storeEvents(second, [""], 1, T0, "missed");
    await env.DB.exec(
      `CREATE TRIGGER fails BEFORE DELETE ON events WHEN OLD.workspace_id = '${first}' BEGIN SELECT RAISE(ABORT, 'it fails'); END`,
    );
    await expect(sweepAt(EXPIRED + DAY_MS)).rejects.toThrow();
    await expect(sweepAt(EXPIRED + DAY_MS)).rejects.toThrow();
    expect([await countIn(first), await countIn(second)]).toEqual([CLEANUP_MAX, 0]);
    await env.DB.exec("DROP TRIGGER fails");
    expect(await sweepAt(EXPIRED + DAY_MS)).toBe(CLEANUP_MAX);
  });

  test("reads a few rows for each workspace with nothing to delete", async () => {
    await Promise.all([1, 2, 3].map(() => stored(50, "delivered")));
    const { DB, rows } = meteredDatabase();
    expect(await sweepAt(EXPIRED - HOUR_MS + MINUTE_MS, connect(DB))).toBe(0);
    expect(rows.read).toBeLessThan(5 * 3 + 10);
    expect(rows.written).toBe(0);
  });

  test("goes on behind as many pending events as one step examines", async () => {
    const { id, workspaceId } = await stored(CLEANUP_MAX, "pending");
    await storeEvents(workspaceId, id, 5, T0 + MINUTE_MS, "delivered");
    expect(await sweepAt(EXPIRED + DAY_MS + MINUTE_MS, db, timeFor(1))).toBe(0);
    expect(await sweepAt(EXPIRED + DAY_MS + MINUTE_MS, db, timeFor(1))).toBe(5);
    expect(await statesOf(id)).toEqual({ pending: CLEANUP_MAX });
  });

  test("ends once it has examined all events and deleted none", async () => {
    const count = CLEANUP_MAX + 1;
    await stored(count, "pending");
    const { DB, rows } = meteredDatabase();
    expect(await sweepAt(EXPIRED + DAY_MS + MINUTE_MS, connect(DB))).toBe(0);
    expect(rows.read).toBeLessThan(7 * count);
  });
});

test("a retention may be a fraction, of which the maximum of events is rounded up", () => {
  const fractions = { EVENTS_KEPT_DAYS: 0.5, EVENTS_KEPT_MAX: 2.5 };
  const kept = parseRetention({ ...env, ...fractions } as unknown as Env);
  expect(kept).toEqual({ keptMs: DAY_MS / 2, eventsMax: 3 });
});

test.each(["", "0", "-1", "thirty"])("a retention of %j is refused, not applied", (value) => {
  for (const name of ["EVENTS_KEPT_DAYS", "EVENTS_KEPT_MAX"])
    expect(() => parseRetention({ ...env, [name]: value })).toThrow(
      `${name} is not a positive number`,
    );
});
