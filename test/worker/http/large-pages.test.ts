import { env } from "cloudflare:workers";
import { expect, test } from "vitest";
import { connect } from "../../../src/db/client.ts";
import { listDeliveriesOf } from "../../../src/history/deliveries.ts";
import {
  automationReport,
  deployedWith,
  leadReport,
  listAll,
  openApi,
  openWorkspace,
  Platform,
  recordAutomation,
  runReport,
} from "../../support/api.ts";
import { subscribe } from "../../support/deliveries.ts";
import { interposed } from "../../support/interposed.ts";
import { WORKSPACE_DB } from "../../support/placement.ts";

const HALF_A_MEGABYTE = 512 * 1024;
const COUNT = 60;

const { workspaceId, apiKey, api } = await openWorkspace();
const automationId = await recordAutomation(workspaceId);
const numbers = Array.from({ length: COUNT }, (_, i) => String(i));
const long = "é".repeat(1_000);
const actions = Array.from({ length: 70 }, () => ({ type: "é".repeat(100), status: "success" }));
await Platform.recordLeads({
  workspaceId,
  leads: numbers.map((n) => leadReport(n, { customFields: { answer: "é".repeat(7_000) } })),
});
await Platform.recordRuns({
  workspaceId,
  runs: numbers.map((n) => runReport(n, automationId, { actions })),
});
for (const part of ["a", "b"])
  await Platform.recordAutomations({
    workspaceId,
    automations: numbers.map((n) =>
      automationReport(`${part}${n}`, {
        type: "crm_source",
        name: long,
        provider: long,
        agent: { reference: n, name: long },
      }),
    ),
  });

test.each([
  ["leads", COUNT],
  ["runs", COUNT],
  [`automations/${automationId}/runs`, COUNT],
  ["automations", 2 * COUNT + 1],
])(
  "a page of %s ends at half a megabyte, whatever its limit, and skips nothing",
  async (path, total) => {
    const { body } = await api.get<{ data: object[]; has_more: boolean }>(`/v1/${path}?limit=100`);
    const bytes = new TextEncoder().encode(JSON.stringify(body)).length;
    expect(bytes).toBeLessThan(1.05 * HALF_A_MEGABYTE);
    expect(bytes).toBeGreaterThan(0.9 * HALF_A_MEGABYTE);
    expect(body.has_more).toBe(true);
    const all = await listAll<{ id: string }>(api, path);
    expect(new Set(all.map(({ id }) => id)).size).toBe(total);
  },
);

/** A database, and the largest number of leads that it has returned at once. */
function observed() {
  const returned = { most: 0 };
  const DB = interposed(WORKSPACE_DB, async ({ texts, go }) => {
    const found = await go();
    if (texts.some((text) => text.includes('from "leads"')))
      for (const { results } of [found].flat())
        returned.most = Math.max(returned.most, results.length);
    return found;
  });
  return { returned, DB };
}

test("the database returns no more leads than fit on a page, and one", async () => {
  const { returned, DB } = observed();
  const { body } = await openApi(apiKey, deployedWith({ DB })).get<{ data: object[] }>(
    "/v1/leads?limit=100",
  );
  expect(returned.most).toBe(body.data.length + 1);
});

test("a page of deliveries reads sixteen leads at once for their names", async () => {
  const { workspaceId: own } = await openWorkspace();
  const { id } = await subscribe(own);
  const leads = numbers.map((n) => leadReport(n, { name: `Lead ${n}` }));
  await Platform.recordLeads({ workspaceId: own, leads });
  const { returned, DB } = observed();
  const request = { limit: 100, after: null };
  const { items } = await listDeliveriesOf(connect(DB), env, id, {}, request);
  expect(items.map(({ subject }) => subject).toSorted()).toEqual(
    numbers.map((n) => `Lead ${n}`).toSorted(),
  );
  expect(returned.most).toBe(16);
});
