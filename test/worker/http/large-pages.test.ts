import { expect, test } from "vitest";
import {
  automationReport,
  leadReport,
  listAll,
  openWorkspace,
  Platform,
  recordAutomation,
  runReport,
} from "../../support/api.ts";

const HALF_A_MEGABYTE = 512 * 1024;
const COUNT = 60;

const { workspaceId, api } = await openWorkspace();
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
