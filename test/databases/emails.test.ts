import { exports } from "cloudflare:workers";
import { expect, test } from "vitest";
import { openDatabase } from "../../src/db/client.ts";
import { sendNotices } from "../../src/webhooks/notices/notify.ts";
import { databaseOf, rowsIn } from "../support/databases.ts";
import { keepLog } from "../support/log-lines.ts";
import { type Email, mailbox } from "../support/mailbox.ts";
import { cleanUp, copyAll, dieClosed, moved, openWithLeads } from "../support/moves.ts";

const { Platform } = exports;
keepLog();

const MINUTE_MS = 60_000;

/** A workspace in DB_2 whose administrator is owed an e-mail. */
async function openOwed() {
  const { workspaceId, webhookId } = await openWithLeads(1);
  const address = `${workspaceId}@example.com`;
  await Platform.updateWorkspace({ workspaceId, adminEmails: [address] });
  await rowsIn(
    "DB_2",
    `INSERT INTO notices (kind, workspace_id, subscription_id, host, events, failing_since, created_at, due_at)
        VALUES ('disabled', ?, ?, 'a.example', '[]', 1, 2, 3)`,
    workspaceId,
    webhookId,
  );
  return { workspaceId, address };
}

const send = (database: "DB_2" | "DB_3", env: Env, afterMinutes = 0) =>
  sendNotices(openDatabase(databaseOf(database)), env, Date.now() + afterMinutes * MINUTE_MS);

test.each<[string, (workspaceId: string) => Promise<void>]>([
  ["switched to another database", (workspaceId) => moved(workspaceId, "DB_3")],
  [
    "moved and deleted here",
    async (workspaceId) => {
      await moved(workspaceId, "DB_3");
      await cleanUp();
    },
  ],
])(
  "an e-mail is sent once, though its workspace is %s meanwhile, and so are the others",
  async (_, act) => {
    const moving = await openOwed();
    const staying = await openOwed();
    // The two databases number their notices differently.
    await databaseOf("DB_3").exec(
      "INSERT INTO notices (id, workspace_id, subscription_id, host, events, failing_since, created_at, due_at, sent_at) SELECT coalesce(max(id), 0) + 1000, '', 'x' || coalesce(max(id), 0), '', '[]', 1, 2, 3, 4 FROM notices",
    );
    await copyAll(moving.workspaceId);
    let hasMoved = false;
    const box = mailbox(async ({ to }: Email) => {
      if (to === moving.address && !hasMoved) {
        hasMoved = true;
        await act(moving.workspaceId);
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
  const closed = await openOwed();
  const staying = await openOwed();
  const box = mailbox(async ({ to }: Email) => {
    if (to === closed.address) await dieClosed(closed.workspaceId);
    return false;
  });
  await expect(send("DB_2", box.env)).rejects.toThrow("the workspace is changing its database");
  expect(box.sent.map(({ to }) => to)).toEqual([closed.address, staying.address]);
  await moved(closed.workspaceId, "DB_3");
});
