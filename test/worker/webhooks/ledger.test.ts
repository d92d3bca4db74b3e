import { exports } from "cloudflare:workers";
import { eq } from "drizzle-orm";
import { beforeAll, describe, expect, test } from "vitest";
import { RETRY_WAITS_SECONDS } from "../../../src/contract/limits.ts";
import { deliveries } from "../../../src/db/schema.ts";
import { findLedger } from "../../../src/webhooks/ledger.ts";
import { EMPTY_LEDGER } from "../../support/api.ts";
import {
  announceLeads,
  answered,
  createWorkspace,
  db,
  deliveriesTo,
  dispatchAt,
  failAt,
  MINUTE_MS,
  once,
  setDeliveries,
  subscribe,
} from "../../support/deliveries.ts";

const NOW = Date.UTC(2026, 0, 5, 12);
/** A workspace with 3 delivered, 1 exhausted, 3 cancelled and 2 pending deliveries. */
async function busyWorkspace(): Promise<string> {
  const workspaceId = await createWorkspace();
  const fine = await subscribe(workspaceId);
  await announceLeads(workspaceId, 3, NOW - 20 * MINUTE_MS);
  await dispatchAt(NOW - 20 * MINUTE_MS, [fine.id], answered(200));
  const failing = await subscribe(workspaceId, { events: ["run.completed", "lead.created"] });
  await announceLeads(workspaceId, 1, NOW - 10 * MINUTE_MS);
  await setDeliveries(failing.id, { attempts: RETRY_WAITS_SECONDS.length });
  await failAt(failing.id, [NOW - 10 * MINUTE_MS]);
  await announceLeads(workspaceId, 1, NOW - 9 * MINUTE_MS);
  await exports.Platform.setWorkspaceAccess({ workspaceId, granted: false });
  await exports.Platform.setWorkspaceAccess({ workspaceId, granted: true });
  await announceLeads(workspaceId, 1, NOW - 4 * MINUTE_MS);
  const [row] = (await deliveriesTo(fine.id)).filter(({ state }) => state === "pending");
  await setDeliveries(fine.id, { dueAt: NOW - 6 * MINUTE_MS }, row?.eventId);
  return workspaceId;
}

describe("the ledger", () => {
  let busy: string;
  let quiet: string;
  beforeAll(async () => {
    busy = await busyWorkspace();
    quiet = await createWorkspace();
    const { id } = await subscribe(quiet);
    await announceLeads(quiet, 2, NOW - 2 * MINUTE_MS);
    await dispatchAt(NOW - MINUTE_MS, [id], once(answered(204)));
  });

  test("counts the deliveries of a workspace, or of all, by state", async () => {
    const figures = {
      created: 9,
      pending: 2,
      delivered: 3,
      exhausted: 1,
      cancelled: 3,
      overdue: 1,
    };
    const all = { ...figures, oldestPendingSeconds: 240, addsUp: true };
    expect(await findLedger(db, busy, NOW)).toEqual(all);
    const total = { ...all, created: 11, pending: 3, delivered: 4 };
    expect(await findLedger(db, undefined, NOW)).toEqual(total);
    expect(await findLedger(db, quiet, NOW)).toEqual({
      ...EMPTY_LEDGER,
      created: 2,
      pending: 1,
      delivered: 1,
      oldestPendingSeconds: 120,
    });
  });

  test("counts as overdue what is pending and due for more than five minutes", async () => {
    const workspaceId = await createWorkspace();
    const { id } = await subscribe(workspaceId);
    await announceLeads(workspaceId, 1, NOW);
    const overdueAt = async (now: number) => (await findLedger(db, workspaceId, now)).overdue;
    expect(await overdueAt(NOW + 5 * MINUTE_MS)).toBe(0);
    expect(await overdueAt(NOW + 5 * MINUTE_MS + 1)).toBe(1);
    // A failed attempt delays it; its age stays.
    await failAt(id, [NOW + MINUTE_MS]);
    expect(await findLedger(db, workspaceId, NOW + 6 * MINUTE_MS)).toMatchObject({
      overdue: 0,
      oldestPendingSeconds: 360,
    });
    await dispatchAt(NOW + 2 * MINUTE_MS, [id], answered(200));
    expect(await findLedger(db, workspaceId, NOW + 60 * MINUTE_MS)).toEqual({
      ...EMPTY_LEDGER,
      created: 1,
      delivered: 1,
    });
  });

  test("does not add up when a row is missing", async () => {
    const workspaceId = await createWorkspace();
    const { id } = await subscribe(workspaceId);
    const [draft] = await announceLeads(workspaceId, 3, NOW);
    await db.delete(deliveries).where(eq(deliveries.eventId, draft?.id ?? ""));
    expect(await deliveriesTo(id)).toHaveLength(2);
    const missing = { created: 3, pending: 2, addsUp: false };
    expect(await exports.Platform.ledger({ workspaceId })).toMatchObject(missing);
    expect(await exports.Platform.ledger({})).toMatchObject({ addsUp: false });
    expect(await exports.Platform.ledger({ workspaceId: quiet })).toMatchObject({ addsUp: true });
  });
});
