import { exports } from "cloudflare:workers";
import { expect, test } from "vitest";
import { openDatabase } from "../../src/db/client.ts";
import { sweep } from "../../src/sweep.ts";
import { sendNotices } from "../../src/webhooks/notices/notify.ts";
import { databaseOf, rowsIn, unreachableDatabase } from "../support/databases.ts";
import { isolated, MINUTE_MS } from "../support/deliveries.ts";
import { keepLog } from "../support/log-lines.ts";
import { mailbox } from "../support/mailbox.ts";
import {
  beginMoving,
  cleanUp,
  copyAll,
  dieClosed,
  moved,
  openWithLeads,
} from "../support/moves.ts";

const { Platform } = exports;
keepLog();

/** A workspace in DB_2 with an administrator, who is owed an e-mail once `owe` is called. */
async function openAdministered() {
  const { workspaceId, webhookId } = await openWithLeads(1);
  const address = `${workspaceId}@example.com`;
  await Platform.updateWorkspace({ workspaceId, adminEmails: [address] });
  const owe = (subscriptionId = webhookId) =>
    rowsIn(
      "DB_2",
      `INSERT INTO notices (kind, workspace_id, subscription_id, host, events, failing_since, created_at, due_at)
        VALUES ('disabled', ?, ?, 'a.example', '[]', 1, 2, 3)`,
      workspaceId,
      subscriptionId,
    );
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

test.each([
  ["switched to another database", async () => {}],
  ["moved and deleted here", cleanUp],
])(
  "an e-mail is sent once, though its workspace is %s meanwhile, and so are the others",
  async (_, afterwards) => {
    const [moving, staying] = await openTwo();
    // The two databases number their notices differently.
    await databaseOf("DB_3").exec(
      "INSERT INTO notices (id, workspace_id, subscription_id, host, events, failing_since, created_at, due_at, sent_at) SELECT coalesce(max(id), 0) + 1000, '', 'x' || coalesce(max(id), 0), '', '[]', 1, 2, 3, 4 FROM notices",
    );
    await copyAll(moving.workspaceId);
    let hasMoved = false;
    const box = mailbox(async ({ to }) => {
      if (to === moving.address && !hasMoved) {
        hasMoved = true;
        await moved(moving.workspaceId, "DB_3");
        await afterwards();
      }
      return false;
    });
    await send("DB_2", box.env);
    for (const minutes of [1, 6, 60]) {
      await send("DB_2", box.env, minutes);
      await send("DB_3", box.env, minutes);
    }
    expect(box.sent.map(({ to }) => to)).toEqual([moving.address, staying.address]);
  },
);

test("an e-mail whose outcome cannot be recorded, because its workspace stays closed, stops no other", async () => {
  const [closed, staying] = await openTwo();
  const box = mailbox(async ({ to }) => {
    if (to === closed.address) await dieClosed(closed.workspaceId);
    return false;
  });
  await expect(send("DB_2", box.env)).rejects.toThrow("the workspace is changing its database");
  expect(box.sent.map(({ to }) => to)).toEqual([closed.address, staying.address]);
  await moved(closed.workspaceId, "DB_3");
});

test("e-mails of a workspace that arrives, or is closed, wait until it has moved; others do not", async () => {
  const leaving = await openAdministered();
  const staying = await openAdministered();
  await leaving.owe();
  await copyAll(leaving.workspaceId);
  const box = mailbox();
  const { DELIVERIES, REDELIVERIES } = isolated().env;
  const bindings = { ...box.env, DELIVERIES, REDELIVERIES };
  // The sweep of DB_2 comes later.
  const DB_2 = unreachableDatabase("rejects");
  await sweep({ ...bindings, DB_2 } as Env, Date.now()).catch(() => {});
  expect(box.sent).toEqual([]);
  await dieClosed(leaving.workspaceId);
  await staying.owe();
  await sweep(bindings, Date.now());
  await moved(leaving.workspaceId, "DB_3");
  await staying.owe("whk_other");
  await sweep(bindings, Date.now());
  const sent = box.sent.map(({ to }) => to).sort();
  expect(sent).toEqual([leaving, staying, staying].map(({ address }) => address).sort());
});

test("an e-mail that is sent during a move, or newly owed to an administrator, is so in the new database", async () => {
  const { workspaceId, webhookId, owe } = await openAdministered();
  await owe();
  await rowsIn("DB_2", "UPDATE notices SET sent_at = 4 WHERE subscription_id = ?", webhookId);
  const insert =
    "INSERT INTO emails (notice_id, recipient, due_at) SELECT id, ?, 9e12 FROM notices WHERE subscription_id = ?";
  const add = (recipient: string) => rowsIn("DB_2", insert, recipient, webhookId);
  await add("first@example.com");
  await copyAll(workspaceId);
  await add("second@example.com");
  await beginMoving(workspaceId, 2);
  await rowsIn("DB_2", "UPDATE emails SET state = 'sent' WHERE recipient = 'first@example.com'");
  await moved(workspaceId, "DB_3");
  const read =
    "SELECT recipient, state FROM emails JOIN notices n ON n.id = notice_id WHERE subscription_id = ? ORDER BY 1";
  expect(await rowsIn("DB_3", read, webhookId)).toEqual([
    { recipient: "first@example.com", state: "sent" },
    { recipient: "second@example.com", state: "owed" },
  ]);
});
