import { exports } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import type { Page as PageOf } from "../../../../src/http/paging.ts";
import type { Lead } from "../../../../src/records/leads.ts";
import { showPerson } from "../../../../src/records/person.ts";
import {
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
    const expected = sources.map((source, i) => ({
      id: ids[i],
      source,
      agent_id: expect.stringMatching(/^agt_[0-9a-z]+$/),
      ...showPerson({}),
      created_at: `2026-03-1${i}T09:26:53.000Z`,
    }));
    expect(await api.get("/v1/leads")).toEqual(
      success(200, { data: expected.reverse(), has_more: false, next_cursor: null }),
    );
    for (const id of ids) expect(id).toMatch(/^lea_[0-9a-z]+$/);
  });

  test("has one id per agent, in leads and in automations, and different ids in different workspaces", async () => {
    const [one, other] = await Promise.all([openWorkspace(), openWorkspace()]);
    const agent = { reference: "agent-1", name: "Agence Lumière" };
    for (const { workspaceId } of [one, other]) {
      await recordLead(workspaceId, { agent });
      await recordAutomation(workspaceId, { agent });
    }
    const agentIds = async ({ api }: typeof one) =>
      Promise.all(
        ["/v1/leads", "/v1/automations"].map(async (path) => {
          const { body } = await api.get<{ data: { agent_id: string }[] }>(path);
          return body.data.map(({ agent_id }) => agent_id);
        }),
      );
    const [leads, automations] = await agentIds(one);
    expect(leads).toEqual(automations);
    expect((await agentIds(other))[0]).not.toEqual(leads);
  });

  test("leaves out a lead that cannot be decrypted, logs it, and shows those behind it", async () => {
    const { workspaceId, api } = await openWorkspace();
    const leads = ["1", "2", "3"].map((day) =>
      leadReport(day, { createdAt: `2026-03-0${day}T00:00:00Z` }),
    );
    const { ids } = await exports.Platform.recordLeads({ workspaceId, leads });
    await damageLead(ids[2]);
    const first = (await api.get<Page>("/v1/leads?limit=1")).body;
    expect(first).toEqual({ data: [], has_more: true, next_cursor: expect.any(String) });
    const { body } = await api.get<Page>(`/v1/leads?cursor=${first.next_cursor}`);
    expect(body.data.map(({ id }) => id)).toEqual([ids[1], ids[0]]);
    expect(lines.join()).toContain(`"lead_unreadable","leadId":"${ids[2]}"`);
  });
});
