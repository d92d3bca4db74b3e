import { exports } from "cloudflare:workers";
import { expect, test } from "vitest";
import { isoTime } from "../../src/contract/time.ts";
import { sweep } from "../../src/sweep.ts";
import { type DatabaseName, valueIn } from "../support/databases.ts";
import { HOUR_MS, isolated, MINUTE_MS, subscribe } from "../support/deliveries.ts";
import { moved } from "../support/moves.ts";
import { storeEvents } from "../support/stored-events.ts";

const { Platform } = exports;

test("a range that is being redelivered moves with its workspace, and goes on where it is then", async () => {
  const now = Date.now();
  const { workspaceId } = await Platform.createWorkspace({ name: "Agence", database: "DB_2" });
  const { id: webhookId } = await subscribe(workspaceId);
  await storeEvents(workspaceId, webhookId, 900, now - HOUR_MS, "missed");
  const since = isoTime(now - 2 * HOUR_MS);
  expect(await Platform.redeliver({ webhookId, since })).toEqual({ count: 600, more: true });
  await moved(workspaceId, "DB_3");
  for (const minute of [1, 2]) await sweep(isolated().env, now + minute * MINUTE_MS);
  const owed = (database: DatabaseName) =>
    valueIn(database, "SELECT count(*) FROM deliveries WHERE subscription_id = ?", webhookId);
  expect([await owed("DB_2"), await owed("DB_3")]).toEqual([600, 900]);
  const ranges = "SELECT ranges FROM subscriptions WHERE id = ?";
  expect(await valueIn("DB_3", ranges, webhookId)).toBeNull();
  expect(await Platform.ledger({ workspaceId })).toMatchObject({ created: 900, addsUp: true });
});
