import { env } from "cloudflare:workers";
import { sql } from "drizzle-orm";
import { expect, test } from "vitest";
import { commit, counted, inOrder, openDatabase } from "../../../src/db/client.ts";
import { commitOnce, deleteCommits } from "../../../src/db/commit-once.ts";
import {
  automationReport,
  leadReport,
  openWorkspace,
  recordAutomation,
  runReport,
} from "../../support/api.ts";
import { call, deployment, ingestBodies } from "../../support/ingest.ts";
import { interposed } from "../../support/interposed.ts";
import { lossyDatabase } from "../../support/lost-reply.ts";
import { record } from "../../support/record.ts";

const NOW = Date.UTC(2026, 5, 5, 12);
/** Older than any other transaction of this file. */
const LONG_AGO = Date.UTC(2020, 0);

async function tokens(): Promise<number> {
  const row = env.DB.prepare("SELECT count(*) AS n FROM commits");
  return (await row.first<number>("n")) ?? 0;
}

test("a transaction that arrives only after its second try was committed changes nothing", async () => {
  const { workspaceId } = await openWorkspace();
  const rename = counted(sql`UPDATE workspaces SET name = name || '!' WHERE id = ${workspaceId}`);
  const late: (() => Promise<unknown>)[] = [];
  const DB = interposed(env.DB, async ({ go }) => {
    if (late.length > 0) return go();
    late.push(go);
    throw new Error("D1_ERROR: Network connection lost.");
  });
  expect(await commitOnce(openDatabase(DB), rename, NOW)).toBe(1);
  await expect(late[0]?.()).rejects.toThrow("UNIQUE constraint failed");
  const row = env.DB.prepare("SELECT name FROM workspaces WHERE id = ?").bind(workspaceId);
  expect(await row.first("name")).toBe("Agence Lumière!");
});

test("any error other than the transaction's own token is thrown", async () => {
  const broken = inOrder([sql`INSERT INTO workspaces (id) VALUES ('wks_1')`]);
  await expect(commitOnce(openDatabase(env.DB), broken, NOW)).rejects.toThrow("NOT NULL");
});

test("only automations and removals leave a token, whether they are called or in a batch of the ingest queue", async () => {
  const { workspaceId } = await openWorkspace();
  const id = await recordAutomation(workspaceId);
  const left = async (write: () => Promise<unknown>) => {
    const before = await tokens();
    await write();
    return (await tokens()) - before;
  };
  const leads = { workspaceId, leads: [leadReport("1"), leadReport("2")] };
  const runs = { workspaceId, runs: [runReport("1", id)] };
  expect(await left(() => record(env, "recordLeads", leads, NOW))).toBe(0);
  expect(await left(() => record(env, "recordRuns", runs, NOW))).toBe(0);
  const message = call("recordLeads", leads);
  const report = call("recordAutomations", { workspaceId, automations: [automationReport("1")] });
  const removal = call("removeAutomations", { workspaceId, ids: ["aut_1"] });
  for (const [other, count] of [[message, 0] as const, [report, 1] as const, [removal, 1] as const])
    expect(await left(() => ingestBodies([message, other], deployment().env))).toBe(count);
});

test("a transaction leaves one token, which is deleted after an hour", async () => {
  const { workspaceId } = await openWorkspace();
  const before = await tokens();
  const input = { workspaceId, automations: [automationReport("1"), automationReport("2")] };
  const DB = lossyDatabase("reply");
  await record({ ...env, DB }, "recordAutomations", input, LONG_AGO);
  expect(await tokens()).toBe(before + 1);
  for (const [laterMs, kept] of [[3_600_000, 1] as const, [3_600_001, 0] as const]) {
    await commit(openDatabase(env.DB), deleteCommits(LONG_AGO + laterMs));
    expect(await tokens()).toBe(before + kept);
  }
});
