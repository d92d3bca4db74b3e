import { env, exports } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { sweep } from "../../src/doors/sweep.ts";
import { goOn, moveWorkspace } from "../../src/moving/move.ts";
import { leadReport, openWorkspace } from "../support/api.ts";
import { databaseOf, NAMES } from "../support/databases.ts";
import { isolated, subscriberUrl } from "../support/deliveries.ts";
import { hangingBefore } from "../support/hanging.ts";
import { keepLog } from "../support/log-lines.ts";

const { Platform } = exports;
keepLog();

interface Page {
  data: { id: string }[];
}

/** A workspace in DB_2 with a subscription and leads. */
async function open(leads = 3) {
  const { workspaceId, api } = await openWorkspace();
  await api.post("/v1/webhooks", { url: subscriberUrl(), events: ["lead.created"] });
  const reports = Array.from({ length: leads }, (_, i) => leadReport(String(i)));
  const { ids } = await Platform.recordLeads({ workspaceId, leads: reports });
  await allDelivered(workspaceId, leads);
  const leadIds = async () => {
    const { status, body } = await api.get<Page>("/v1/leads");
    return status === 200 ? body.data.map(({ id }) => id).sort() : status;
  };
  return { workspaceId, api, ids: ids.sort(), leadIds };
}

function allDelivered(workspaceId: string, delivered: number) {
  return expect
    .poll(() => Platform.ledger({ workspaceId }), { timeout: 20_000 })
    .toMatchObject({ created: delivered, delivered, addsUp: true });
}

async function moved(workspaceId: string, database: string): Promise<void> {
  while (!(await Platform.moveWorkspace({ workspaceId, database })).done);
}

/** As if all who had taken a move had done so long ago. */
async function expireLeases(): Promise<void> {
  for (const name of NAMES) await databaseOf(name).exec("UPDATE moves SET moved_until = 0");
}

/** Deletes what workspaces have left behind, as if reads that began before were over. */
async function cleanUp(): Promise<void> {
  for (const name of NAMES) await databaseOf(name).exec("UPDATE moves SET since = 0");
  await sweep(isolated().env, Date.now());
}

/** Where the directory says that a workspace lives. */
async function homeOf(workspaceId: string): Promise<string> {
  const row = databaseOf("DB").prepare("SELECT database FROM workspaces WHERE id = ?");
  return (await row.bind(workspaceId).first<{ database: string | null }>())?.database ?? "DB";
}

/** What it takes to live somewhere: reads, writes, and deliveries. */
async function livesIn(database: string, workspace: Awaited<ReturnType<typeof open>>) {
  const { workspaceId, ids, leadIds } = workspace;
  expect(await homeOf(workspaceId)).toBe(database);
  expect(await leadIds()).toEqual(ids);
  const later = await Platform.recordLeads({ workspaceId, leads: [leadReport("later")] });
  expect(await leadIds()).toEqual([...ids, ...later.ids].sort());
  await allDelivered(workspaceId, ids.length + 1);
}

const always = () => true;

describe("a mover that hung", () => {
  test("before it told the target of itself, takes nothing away from who came after it", async () => {
    const workspace = await open();
    const { workspaceId } = workspace;
    const first = hangingBefore((name, sql) => name === "DB_3" && /^update "moves"/.test(sql));
    const hung = moveWorkspace(first.env, workspaceId, "DB_3", always);
    await first.hung;
    await expireLeases();
    const second = hangingBefore((name, sql) => name === "DB_3" && /INSERT INTO "leads"/.test(sql));
    const working = moveWorkspace(second.env, workspaceId, "DB_3", always);
    await second.hung;
    first.release();
    await new Promise((resolve) => setTimeout(resolve, 200));
    second.release();
    await Promise.all([hung, working]);
    await livesIn("DB_3", workspace);
  });

  test("at the switch, leaves it to who came after it", async () => {
    const workspace = await open();
    const { workspaceId } = workspace;
    const first = hangingBefore((name, sql) => name === "DB_3" && /update "workspaces"/.test(sql));
    const hung = moveWorkspace(first.env, workspaceId, "DB_3", always);
    await first.hung;
    await expireLeases();
    const second = hangingBefore(
      (name, sql) => name === "DB_2" && /^select.* from "workspaces"/.test(sql),
    );
    const working = moveWorkspace(second.env, workspaceId, "DB_3", always);
    await second.hung;
    first.release();
    await new Promise((resolve) => setTimeout(resolve, 300));
    second.release();
    await Promise.all([hung, working]);
    await livesIn("DB_3", workspace);
  });

  test("before it changed the directory, does not when the workspace has come back", async () => {
    const workspace = await open();
    const { workspaceId } = workspace;
    const late = hangingBefore((name, sql) => name === "DB" && /update "workspaces"/.test(sql));
    const hung = moveWorkspace(late.env, workspaceId, "DB_3", always);
    await late.hung;
    await expireLeases();
    await moved(workspaceId, "DB_3");
    await cleanUp();
    await moved(workspaceId, "DB_2");
    late.release();
    await hung;
    await livesIn("DB_2", workspace);
  });

  test("while it deleted what was left behind, deletes nothing of what has come back", async () => {
    const workspace = await open();
    const { workspaceId } = workspace;
    await moved(workspaceId, "DB_3");
    for (const name of NAMES) await databaseOf(name).exec("UPDATE moves SET since = 0");
    const late = hangingBefore(
      (name, sql) => name === "DB_2" && /DELETE FROM "?events|delete from "events"/.test(sql),
    );
    const hung = goOn(late.env, "DB_2", workspaceId, always);
    await late.hung;
    await expireLeases();
    await cleanUp();
    await moved(workspaceId, "DB_2");
    late.release();
    await hung;
    await livesIn("DB_2", workspace);
  });

  test("before it began, begins nothing where the workspace lives by now", async () => {
    const workspace = await open();
    const { workspaceId } = workspace;
    const late = hangingBefore(
      (name, sql) => name === "DB_3" && /INSERT INTO "workspaces"/.test(sql),
    );
    const hung = moveWorkspace(late.env, workspaceId, "DB_3", always);
    await late.hung;
    await moved(workspaceId, "DB_3");
    late.release();
    await hung.catch(() => {});
    await livesIn("DB_3", workspace);
    await cleanUp();
    await moved(workspaceId, "DB_2");
    expect(await homeOf(workspaceId)).toBe("DB_2");
  });
});

describe("a move that was ended", () => {
  test("by somebody who died over it, brings back nothing that was erased since", async () => {
    const { workspaceId, ids, leadIds } = await open();
    let steps = 0;
    await moveWorkspace(env, workspaceId, "DB_3", () => ++steps < 5);
    let told = 0;
    const half = hangingBefore(
      (name, sql) => name === "DB_3" && /update "moves"/.test(sql) && ++told === 2,
    );
    void moveWorkspace(half.env, workspaceId, "DB_2", always);
    await half.hung;
    await expireLeases();
    await Platform.eraseLeads({ workspaceId, ids: ids.slice(0, 1) });
    for (let i = 0; i < 5; i++) {
      await moved(workspaceId, "DB_3").catch(() => {});
      await cleanUp();
    }
    expect(await homeOf(workspaceId)).toBe("DB_3");
    expect(await leadIds()).toEqual(ids.slice(1));
  });
});
