import { exports } from "cloudflare:workers";
import { expect, test } from "vitest";
import { openDatabase } from "../../src/db/client.ts";
import { sendNotices } from "../../src/email/notify.ts";
import { openedDataKeys } from "../../src/encryption/personal-data.ts";
import { sweep } from "../../src/sweep.ts";
import { exportAll } from "../support/api.ts";
import { databaseOf, NAMES, rowsIn, unreachableDatabase, valueIn } from "../support/databases.ts";
import { consumeBodies, DAY_MS, isolated, MINUTE_MS } from "../support/deliveries.ts";
import { keepLog } from "../support/log-lines.ts";
import { mailbox } from "../support/mailbox.ts";
import { cleanUp, moved, moveUntil, openWithLeads } from "../support/moves.ts";

const { Platform } = exports;
keepLog();

test("a database that a workspace has left delivers what others are owed, and expires their events", async () => {
  const leaving = await openWithLeads();
  const staying = await openWithLeads();
  const { workspaceId } = staying;
  await moved(leaving.workspaceId, "DB_3");
  /** Writes here to what the workspace has left behind. */
  const write = async (sql: string, ...values: unknown[]) => {
    const hold = "UPDATE workspaces SET hold = ? WHERE id = ?";
    await rowsIn("DB_2", hold, "arriving", leaving.workspaceId);
    await rowsIn("DB_2", sql, ...values);
    await rowsIn("DB_2", hold, "closed", leaving.workspaceId);
  };
  // As a withdrawal that was not finished leaves it.
  const release =
    "UPDATE subscriptions SET leased_until = 0, cancelling = ?, cancellations = ? WHERE id = ?";
  const owe = "UPDATE deliveries SET state = 'pending', due_at = 0 WHERE subscription_id = ?";
  await write(release, 1, 9, leaving.webhookId);
  await write(owe, leaving.webhookId);
  await rowsIn("DB_2", release, 0, 0, staying.webhookId);
  await rowsIn("DB_2", owe, staying.webhookId);
  const { env: bindings, fast, slow } = isolated();
  const wakes = [leaving, staying].map(({ webhookId }) => ({
    subscriptionId: webhookId,
    lane: "fast",
    database: "DB_2",
  }));
  await consumeBodies(wakes, bindings);
  expect(await Platform.ledger({ workspaceId })).toMatchObject({ pending: 0 });
  await sweep(bindings, Date.now() + 2 * MINUTE_MS);
  // Nobody is woken again and again for what is deleted here.
  const woken = [...fast, ...slow].map(({ subscriptionId }) => subscriptionId);
  expect(woken).not.toContain(leaving.webhookId);
  // Settled late: it is to be kept, and gets a time of its own.
  const later = Date.now() + 40 * DAY_MS;
  const settle =
    "UPDATE deliveries SET state = 'delivered', settled_at = ? WHERE subscription_id = ?";
  await write(settle, later, leaving.webhookId);
  await sweep(bindings, later);
  expect(await Platform.ledger({ workspaceId })).toMatchObject({ created: 0 });
});

test("leads move with their data key, which is left nowhere", async () => {
  const { workspaceId, api } = await openWithLeads(2);
  const shown = async () => {
    openedDataKeys.clear();
    return (await api.get("/v1/leads")).body;
  };
  const before = await shown();
  const read = "SELECT data_key FROM workspaces WHERE id = ?";
  const keys = async () => {
    const found = NAMES.map((name) => valueIn(name, read, workspaceId));
    return (await Promise.all(found)).map((key) => key ?? null);
  };
  const [, key] = await keys();
  expect(key).toMatch(/^test\./);
  for (const [to, expected] of [
    ["DB_3", [null, null, key]],
    ["DB_2", [null, key, null]],
  ] as const) {
    await moved(workspaceId, to);
    await cleanUp();
    expect([await shown(), await keys()]).toEqual([before, expected]);
  }
});

test("an export that was begun before a move shows each notice once", async () => {
  const { workspaceId, webhookId } = await openWithLeads();
  // More than one page shows.
  await rowsIn(
    "DB_2",
    `INSERT INTO notices (workspace_id, subscription_id, since, kind, recipients)
      SELECT ?1, ?2, value, 'failing', ?3 FROM json_each(?4)`,
    workspaceId,
    webhookId,
    JSON.stringify(["x".repeat(30_000)]),
    JSON.stringify([...Array(60).keys()]),
  );
  const pages = await exportAll(workspaceId, () => moved(workspaceId, "DB_3"));
  expect(pages.length).toBeGreaterThan(1);
  const notices = pages.flat().filter(({ kind }) => kind === "notice");
  const seen = notices.map(({ since }) => since);
  expect(seen).toHaveLength(60);
  expect(new Set(seen).size).toBe(60);
});

/** A workspace in DB_2 with an administrator, who is owed an e-mail once `owe` is called. */
async function openAdministered() {
  const { workspaceId, webhookId } = await openWithLeads(1);
  const address = `${workspaceId}@example.com`;
  await Platform.updateWorkspace({ workspaceId, adminEmails: [address] });
  const owe = () =>
    rowsIn(
      "DB_2",
      `INSERT INTO notices (workspace_id, subscription_id, since, kind, due_at) VALUES (?, ?, 1, 'disabled', 3)
        ON CONFLICT DO UPDATE SET due_at = 3, recipients = NULL`,
      workspaceId,
      webhookId,
    );
  // Only of a subscription that is still disabled are administrators told.
  const disable = "UPDATE subscriptions SET disabled_at = 2, failing_since = 1 WHERE id = ?";
  await rowsIn("DB_2", disable, webhookId);
  return { workspaceId, webhookId, address, owe };
}

test("an e-mail whose outcome cannot be recorded, because its workspace stays closed, stops no other", async () => {
  const [closed, staying] = [await openAdministered(), await openAdministered()];
  for (const { owe } of [closed, staying]) await owe();
  const box = mailbox(async ({ to }) => {
    if (to === closed.address) await moveUntil(closed.workspaceId, "copying");
    return false;
  });
  const sending = sendNotices(openDatabase(databaseOf("DB_2")), box.env, Date.now());
  await expect(sending).rejects.toThrow("moving: try again");
  expect(box.sent.map(({ to }) => to).sort()).toEqual([closed.address, staying.address].sort());
  await moved(closed.workspaceId, "DB_3");
});

test("e-mails of a workspace that arrives, or is closed, wait until it has moved; others do not", async () => {
  const leaving = await openAdministered();
  const staying = await openAdministered();
  await leaving.owe();
  await moveUntil(leaving.workspaceId, "copying");
  const box = mailbox();
  const { DELIVERIES, REDELIVERIES } = isolated().env;
  const bindings = { ...box.env, DELIVERIES, REDELIVERIES };
  // The sweep of DB_2 comes later.
  const DB_2 = unreachableDatabase("rejects");
  await sweep({ ...bindings, DB_2 } as Env, Date.now()).catch(() => {});
  expect(box.sent).toEqual([]);
  await staying.owe();
  await sweep(bindings, Date.now());
  await moved(leaving.workspaceId, "DB_3");
  await staying.owe();
  await sweep(bindings, Date.now());
  const sent = box.sent.map(({ to }) => to).sort();
  expect(sent).toEqual([leaving, staying, staying].map(({ address }) => address).sort());
});
