import { exports } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import type { Page as PageOf } from "../../../../src/http/paging.ts";
import type { Lead } from "../../../../src/records/leads.ts";
import { showPerson } from "../../../../src/records/person.ts";
import {
  EMPTY_PAGE,
  leadReport,
  openWorkspace,
  recordAutomation,
  recordLead,
  success,
} from "../../../support/api.ts";
import { keepLog } from "../../../support/log-lines.ts";
import { damageLead } from "../../../support/record.ts";

const lines = keepLog();

type Page = PageOf<Lead>;

describe("GET /leads", () => {
  test("returns leads with exactly the fields of the contract, from any source", async () => {
    const { workspaceId, api } = await openWorkspace();
    const sources = ["widget", "social", "telephony", "lead_ads", "crm"] as const;
    const leads = sources.map((source, i) =>
      leadReport(source, { source, createdAt: `2026-03-1${i}T09:26:53Z` }),
    );
    const { ids } = await exports.Platform.recordLeads({ workspaceId, leads });
    const agent_id = expect.stringMatching(/^agt_[0-9a-z]+$/);
    const data = sources.map((source, i) => {
      const created_at = `2026-03-1${i}T09:26:53.000Z`;
      return { id: ids[i], source, agent_id, ...showPerson({}), created_at };
    });
    expect(await api.get("/v1/leads")).toEqual(
      success(200, { ...EMPTY_PAGE, data: data.reverse() }),
    );
    for (const id of ids) expect(id).toMatch(/^lea_[0-9a-z]+$/);
  });

  test("has one id per agent, in leads and in automations, and different ids in different workspaces", async () => {
    const agentIds = new Set<string>();
    for (const { workspaceId, api } of [await openWorkspace(), await openWorkspace()]) {
      await recordLead(workspaceId);
      await recordAutomation(workspaceId);
      for (const path of ["/v1/leads", "/v1/automations"]) {
        const { body } = await api.get<{ data: { agent_id: string }[] }>(path);
        agentIds.add(body.data[0]?.agent_id ?? path);
      }
    }
    expect(agentIds.size).toBe(2);
  });

  test("leaves out a lead that cannot be decrypted, logs it, and shows those behind it", async () => {
    const { workspaceId, api } = await openWorkspace();
    const leads = ["1", "2", "3"].map((day) =>
      leadReport(day, { createdAt: `2026-03-0${day}T00:00:00Z` }),
    );
    const { ids } = await exports.Platform.recordLeads({ workspaceId, leads });
    await damageLead(ids[2]);
    const first = await api.get<Page>("/v1/leads?limit=1");
    expect(first.body).toEqual({ data: [], has_more: true, next_cursor: expect.any(String) });
    const { body } = await api.get<Page>(`/v1/leads?cursor=${first.body.next_cursor}`);
    expect(body.data.map(({ id }) => id)).toEqual([ids[1], ids[0]]);
    expect(lines.join()).toContain(`"lead_unreadable","leadId":"${ids[2]}"`);
  });
});
