import { exports } from "cloudflare:workers";
import { expect, test } from "vitest";
import { automationReport, leadReport, recordAutomation, runReport } from "../support/api.ts";
import { rowsIn } from "../support/databases.ts";
import { copyAll, openWithLeads } from "../support/moves.ts";

const { Platform } = exports;

// Triggers note each row that is written meanwhile, and D1 counts the rows that they write.
test("while a workspace is copied, calls return how many records they have inserted, removed or owed again", async () => {
  const { workspaceId, webhookId } = await openWithLeads(2);
  const automationId = await recordAutomation(workspaceId);
  await copyAll(workspaceId);

  const leads = (...references: string[]) =>
    Platform.recordLeads({ workspaceId, leads: references.map((each) => leadReport(each)) });
  expect(await leads("a", "b")).toMatchObject({ created: 2 });
  expect(await leads("a", "c")).toMatchObject({ created: 1 });

  const runs = [runReport("1", automationId), runReport("2", automationId)];
  expect(await Platform.recordRuns({ workspaceId, runs })).toMatchObject({ created: 2 });

  const automations = [automationReport("x"), automationReport("y")];
  const recorded = await Platform.recordAutomations({ workspaceId, automations });
  expect(recorded).toMatchObject({ created: 2 });
  const { ids } = recorded;
  expect(await Platform.removeAutomations({ workspaceId, ids })).toEqual({ removed: 2 });

  const sql = "SELECT event_id AS id FROM deliveries WHERE subscription_id = ? LIMIT 2";
  const owed = await rowsIn<{ id: string }>("DB_2", sql, webhookId);
  const eventIds = owed.map(({ id }) => id);
  expect(await Platform.redeliver({ webhookId, eventIds })).toMatchObject({ count: 2 });
});
