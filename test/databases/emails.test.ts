import { exports } from "cloudflare:workers";
import { expect, test } from "vitest";
import { openDatabase } from "../../src/db/client.ts";
import { sweep } from "../../src/sweep.ts";
import { sendNotices } from "../../src/webhooks/notices/notify.ts";
import { databaseOf, rowsIn, unreachableDatabase } from "../support/databases.ts";
import { isolated, MINUTE_MS } from "../support/deliveries.ts";
import { keepLog } from "../support/log-lines.ts";
import { mailbox } from "../support/mailbox.ts";
import { moved, moveUntil, openWithLeads } from "../support/moves.ts";

const { Platform } = exports;
keepLog();

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

/** Two such workspaces, both owed. */
async function openTwo() {
  const two = [await openAdministered(), await openAdministered()] as const;
  for (const { owe } of two) await owe();
  return two;
}

const send = (database: "DB_2" | "DB_3", env: Env, afterMinutes = 0) =>
  sendNotices(openDatabase(databaseOf(database)), env, Date.now() + afterMinutes * MINUTE_MS);

test("an e-mail whose outcome cannot be recorded, because its workspace stays closed, stops no other", async () => {
  const [closed, staying] = await openTwo();
  const box = mailbox(async ({ to }) => {
    if (to === closed.address) await moveUntil(closed.workspaceId, "copying");
    return false;
  });
  await expect(send("DB_2", box.env)).rejects.toThrow("moving: try again");
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
