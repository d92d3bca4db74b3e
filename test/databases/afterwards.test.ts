import { env } from "cloudflare:workers";
import { expect, test } from "vitest";
import { connect } from "../../src/db/client.ts";
import { announceProblems } from "../../src/email/announce.ts";
import type { EmailMessage } from "../../src/email/queue.ts";
import { sweep } from "../../src/sweep.ts";
import { openedDataKeys } from "../../src/workspaces/data-keys.ts";
import { deployedAs, exportAll, openApi, Platform, platformOf } from "../support/api.ts";
import { databaseOf, NAMES, rowsIn, valueIn } from "../support/databases.ts";
import { consumeBodies, DAY_MS, isolated, MINUTE_MS } from "../support/deliveries.ts";
import { keepLog } from "../support/log-lines.ts";
import { mailbox } from "../support/mailbox.ts";
import { cleanUp, idsIn, moved, moveUntil, openWithLeads } from "../support/moves.ts";
import { useThreeDatabases } from "../support/placement.ts";
import { insertSubscriptions } from "../support/rows.ts";

useThreeDatabases();

keepLog();

test("a database that a workspace has left delivers the events of others", async () => {
  const leaving = await openWithLeads();
  const staying = await openWithLeads();
  const { workspaceId } = staying;
  await moved(leaving.workspaceId, "DB_3");
  /** Writes here to what the workspace has left behind. */
  const write = async (sql: string, ...values: unknown[]) => {
    const lock = "UPDATE workspaces SET write_lock = ? WHERE id = ?";
    await rowsIn("DB_2", lock, "arriving", leaving.workspaceId);
    await rowsIn("DB_2", sql, ...values);
    await rowsIn("DB_2", lock, "locked", leaving.workspaceId);
  };
  // As a withdrawal that was not finished leaves it.
  const release = `UPDATE subscriptions SET leased_until = 0, has_to_end = ?1, epoch = ?2,
    cancelled_before = json_object('lead.created', ?2) WHERE id = ?3`;
  const owe = "UPDATE deliveries SET state = 'pending', due_at = 0 WHERE subscription_id = ?";
  await write(release, 1, 9, leaving.webhookId);
  await write(owe, leaving.webhookId);
  await rowsIn("DB_2", release, 0, 0, staying.webhookId);
  await rowsIn("DB_2", owe, staying.webhookId);
  const { env: bindings, fast, slow } = isolated();
  const wakeUps = [leaving, staying].map(({ webhookId }) => ({
    subscriptionId: webhookId,
    queue: "fast",
    database: "DB_2",
  }));
  await consumeBodies(wakeUps, bindings);
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
  const read = "SELECT sealed_data_key FROM workspaces WHERE id = ?";
  const keys = async () => {
    const found = NAMES.map((name) => valueIn(name, read, workspaceId));
    return (await Promise.all(found)).map((key) => key ?? null);
  };
  const [, key] = await keys();
  expect(key).toMatch(/^test\./);
  await moved(workspaceId, "DB_3");
  await cleanUp();
  expect([await shown(), await keys()]).toEqual([before, [null, null, key]]);
});

test.each([
  ["copying", 1],
  // Both databases have the data key.
  ["switching", 2],
  ["cleanup", 1],
] as const)(
  "resealSecrets counts the data key of a workspace that moves, and re-encrypts it afterwards: %s",
  async (stage, remaining) => {
    // What the workspaces of other tests have left behind would count, too.
    await cleanUp();
    const { workspaceId, leadIds, apiKey, ids } = await openWithLeads();
    const newKey = "new:QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl8=";
    const rotated = platformOf({ ...env, ENCRYPTION_KEYS: `${newKey},${env.ENCRYPTION_KEYS}` });
    const resealAll = async () => {
      let call = await rotated.resealSecrets({});
      while (call.resealed > 0) call = await rotated.resealSecrets({});
      return call;
    };
    expect(await leadIds()).toEqual(ids);
    await moveUntil(workspaceId, stage);
    expect(await resealAll()).toEqual({ resealed: 0, remaining, unreadable: 0 });
    await moved(workspaceId, "DB_3");
    await cleanUp();
    expect(await resealAll()).toEqual({ resealed: 0, remaining: 0, unreadable: 0 });
    openedDataKeys.clear();
    const alone = openApi(apiKey, deployedAs({ ...env, ENCRYPTION_KEYS: newKey }));
    expect((await idsIn(alone, "leads")).sort()).toEqual(ids);
  },
);

test("an export that was begun before a move shows each subscription once", async () => {
  const { workspaceId } = await openWithLeads();
  // More than one page shows.
  const ids = Array.from({ length: 60 }, (_, i) => `whk_${i}`);
  const description = "x".repeat(30_000);
  await insertSubscriptions(ids.map((id, i) => ({ id, workspaceId, description, createdAt: i })));
  const pages = await exportAll(workspaceId, () => moved(workspaceId, "DB_3"));
  expect(pages.length).toBeGreaterThan(1);
  const seen = pages.flat().flatMap(({ kind, id }) => (kind === "webhook" ? [id] : []));
  for (const id of ids) expect(seen.filter((one) => one === id)).toHaveLength(1);
});
/** A workspace in DB_2 with an administrator, who should be told that its subscription was disabled. */
async function openAdministered() {
  const { workspaceId, webhookId } = await openWithLeads(1);
  const address = `${workspaceId}@example.com`;
  await Platform.updateWorkspace({ workspaceId, adminEmails: [address] });
  const disable = () =>
    rowsIn(
      "DB_2",
      "UPDATE subscriptions SET disabled_at = ?, disabled_by_failures = 1, failing_since = 1 WHERE id = ?",
      Date.now(),
      webhookId,
    );
  return { workspaceId, webhookId, address, disable };
}

/** How many e-mails the queue was passed for an address. */
const countFor = ({ address }: { address: string }, box: ReturnType<typeof mailbox>) =>
  box.held.filter(({ body }) => body.to === address).length;

test("an announcement that cannot be recorded, because its workspace moves, stops no other", async () => {
  const [moving, staying] = [await openAdministered(), await openAdministered()];
  for (const { disable } of [moving, staying]) await disable();
  const box = mailbox();
  const sendBatch = async (messages: MessageSendRequest<EmailMessage>[]) => {
    await box.env.EMAILS.sendBatch(messages);
    if (messages.some(({ body }) => body.to === moving.address))
      await moveUntil(moving.workspaceId, "copying");
  };
  const bindings = { ...box.env, EMAILS: { sendBatch } as unknown as Queue };
  const DB_2 = connect(databaseOf("DB_2"));
  for (let i = 0; i < 2; i++) await announceProblems(DB_2, bindings, Date.now());
  expect([countFor(moving, box), countFor(staying, box)]).toEqual([1, 1]);
  await moved(moving.workspaceId, "DB_3");
  // Once more, because nothing says that it was announced.
  const DB_3 = connect(databaseOf("DB_3"));
  for (let i = 0; i < 2; i++) await announceProblems(DB_3, box.env, Date.now());
  expect([countFor(moving, box), countFor(staying, box)]).toEqual([2, 1]);
});

test("announcements of a workspace that moves wait until it has moved", async () => {
  const leaving = await openAdministered();
  const staying = await openAdministered();
  await leaving.disable();
  await moveUntil(leaving.workspaceId, "copying");
  await staying.disable();
  const box = mailbox();
  const { DELIVERIES, SLOW_DELIVERIES } = isolated().env;
  const bindings = { ...box.env, DELIVERIES, SLOW_DELIVERIES };
  await sweep(bindings, Date.now());
  expect([countFor(leaving, box), countFor(staying, box)]).toEqual([0, 1]);
  await moved(leaving.workspaceId, "DB_3");
  await sweep(bindings, Date.now());
  expect([countFor(leaving, box), countFor(staying, box)]).toEqual([1, 1]);
});

test("an e-mail about a workspace that has moved since is sent", async () => {
  const administered = await openAdministered();
  await administered.disable();
  const box = mailbox();
  await announceProblems(connect(databaseOf("DB_2")), box.env, Date.now());
  await moved(administered.workspaceId, "DB_3");
  await box.consumeAt(Date.now());
  expect(box.sent.map(({ to }) => to)).toContain(administered.address);
});
