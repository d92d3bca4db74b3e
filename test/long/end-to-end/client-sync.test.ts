import { readFileSync, statSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { openClient } from "../../node/support/client.ts";
import { opened } from "../../node/support/opened.ts";
import type { Program } from "../../node/support/process.ts";
import { freePort, proxyTo } from "../../node/support/server.ts";
import { numbered } from "../../node/support/workspace.ts";
import { until } from "../../support/until.ts";

type Stored = Record<"automations" | "leads" | "runs", { id: string; status?: string }[]>;

const client = await openClient();
const { runtime, built } = client;
/** Called before a page of leads is passed on, with 1 for the first page of a walk; may refuse it. */
let beforePage: (page: number) => Promise<void> = async () => {};
let page = 0;
/** Tells of pages of leads. */
const proxy = await opened(
  proxyTo(runtime.url, async ({ url = "" }) => {
    const { pathname, searchParams } = new URL(url, runtime.url);
    if (pathname !== "/v1/leads") return;
    page = searchParams.get("cursor") ? page + 1 : 1;
    await beforePage(page);
  }),
);

const now = Date.now();
const workspace = built && (await client.open());
const automationIds = built && (await workspace.recordAutomations(["1", "2", "3"]));
let program: Program;

beforeAll(async () => {
  // Three pages, a lead an hour.
  if (built) await recordLeads(numbered(250).map(Number));
});
afterAll(() => void program?.child.kill("SIGKILL"));

/** Leads by their age in hours, which is also their reference. */
const recordLeads = (ages: number[]) =>
  workspace.recordLeads(ages.map(String), (age) => ({
    createdAt: new Date(now - Number(age) * 3_600_000).toISOString(),
  }));

/** Starts the program, and waits until it has said so. */
async function start(said = "Walked: "): Promise<void> {
  const PORT = String(await freePort());
  program = client.start("sync", { API_URL: proxy.url, API_KEY: workspace.apiKey, PORT });
  await until(() => program.output().includes(said)).catch(() => {});
  expect(program.output()).toContain(said);
}

const file = () => join(built.folder, "copy.json");
const stored = (): Stored => JSON.parse(readFileSync(file(), "utf8"));
const leadIds = () => stored().leads.map(({ id }) => id);
const statusOf = (id: string) => stored().automations.find((one) => one.id === id)?.status;

/** Everything that the service lists. */
async function listed(): Promise<Stored> {
  const all = async (items: AsyncIterable<{ id: string }>) => {
    const found = [];
    for await (const item of items) found.push(item);
    return found;
  };
  const { client } = workspace;
  return {
    automations: await all(client.listAutomations()),
    leads: await all(client.listLeads()),
    runs: await all(client.listRuns()),
  };
}

const sorted = (copy: Stored) =>
  Object.values(copy).map((records) => records.toSorted((a, b) => (a.id < b.id ? -1 : 1)));

test("npm run sync has everything after its first walk, though the pages move meanwhile", async () => {
  const added: string[] = [];
  let isFirst = true;
  beforePage = async (page) => {
    if (page !== 2 || !isFirst) return;
    isFirst = false;
    // Above all pages, in the page that was read, and in one to come.
    added.push(...(await recordLeads([0, 30.5, 200.5])));
    // It was read before the leads.
    await workspace.recordRuns(String(automationIds[0]), ["1"]);
    await workspace.client.pauseAutomation(automationIds[1]);
  };
  await start();
  await until(() => leadIds().length === 253 && statusOf(String(automationIds[1])) === "paused");
  expect(added).toHaveLength(3);
  for (const id of added) expect(leadIds()).toContain(id);
  expect(sorted(stored())).toEqual(sorted(await listed()));
  expect(program.output().match(/Walked/g)).toHaveLength(1);
  expect(statSync(file()).mode & 0o777).toBe(0o600);
});

test("npm run sync gets a back-dated record, which the newest pages do not show", async () => {
  const [id] = await recordLeads([249.5]);
  const newest = async (query: string) => {
    const path = `/v1/leads?${query}`;
    const { data } = await workspace.api<{ data: { id: string }[] }>("GET", path);
    return data.map((lead) => lead.id);
  };
  const since = new Date(now).toISOString();
  expect(await newest("limit=100")).not.toContain(id);
  // There is no such filter.
  expect(await newest(`limit=100&since=${since}`)).toEqual(await newest("limit=100"));
  await until(() => leadIds().includes(String(id)));
  expect(sorted(stored())).toEqual(sorted(await listed()));
});

test("npm run sync keeps the later state of an automation when an earlier one arrives late", async () => {
  const { PLATFORM } = runtime.env;
  const id = String(automationIds[1]);
  const { workspaceId } = workspace;
  await workspace.client.activateAutomation(id);
  await until(() => statusOf(id) === "active");
  const [webhook] = (await PLATFORM.listWebhooks({ workspaceId })).items;
  const webhookId = String(webhook?.webhookId);
  const type = "automation.status_changed" as const;
  const { items } = await PLATFORM.listDeliveries({ webhookId, type });
  const paused = String([...items].at(-1)?.eventId);
  const before = statSync(file()).mtimeMs;
  await PLATFORM.redeliver({ webhookId, eventIds: [paused] });
  await until(() => statSync(file()).mtimeMs > before);
  expect(statusOf(id)).toBe("active");
});

test("npm run sync notices at the next walk what has been removed, and ends without a subscription", async () => {
  program.child.kill("SIGINT");
  expect((await program.ended).code).toBe(0);
  const { PLATFORM } = runtime.env;
  const { workspaceId } = workspace;
  expect([...(await PLATFORM.listWebhooks({ workspaceId })).items]).toEqual([]);
  // While it does not run: one record of each kind is gone, and a lead is new.
  const [gone] = leadIds();
  await PLATFORM.eraseLeads({ workspaceId, ids: [String(gone)] });
  await PLATFORM.removeAutomations({ workspaceId, ids: [String(automationIds[0])] });
  const [added] = await recordLeads([100.5]);
  expect(leadIds()).toContain(gone);
  await start();
  expect(leadIds()).not.toContain(gone);
  expect(leadIds()).toContain(added);
  expect(program.output()).toMatch(/automations 2 \(0 new, 1 gone\), leads 254 \(1 new, 1 gone\)/);
  expect(sorted(stored())).toEqual(sorted(await listed()));
});

test("npm run sync removes nothing after a walk that did not reach the end", async () => {
  program.child.kill("SIGINT");
  await program.ended;
  const before = leadIds();
  beforePage = async (page) => {
    if (page === 2) throw new Error("refused");
  };
  await start("trying again in 60 s.");
  expect(program.output()).not.toContain("Walked");
  expect(leadIds()).toEqual(before);
});
