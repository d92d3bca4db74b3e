import { createExecutionContext, waitOnExecutionContext } from "cloudflare:test";
import { env, exports } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { isServed } from "../../../src/contract/served.ts";
import { Platform } from "../../../src/platform/entrypoint.ts";
import {
  automationReport,
  deployedWith,
  EMPTY_PAGE,
  eventsOf,
  leadReport,
  openApi,
  openListeningWorkspace,
  rateLimitOf,
  recordAutomation,
  refusal,
  runReport,
  send,
  success,
  withoutRateLimit,
} from "../../support/api.ts";

const ROUTE_NOT_FOUND = refusal(404, "route_not_found");
const ALL = env.SERVED_ROUTES.split(",");
const CREATION = { url: "https://ok-served.example/", events: ["lead.created"] };

/** `SERVED_ROUTES` without one part. */
function without(part: string): string {
  return ALL.filter((name) => name !== part).join();
}

test("the list of served parts is the whole contract by default, and is parsed name by name", () => {
  const contract = ["automations", "automations.patch", "automations.crm_source"];
  expect(ALL).toEqual([...contract, "leads", "runs", "webhooks"]);
  expect(isServed("leads, runs", "runs")).toBe(true);
  expect(isServed("", "leads")).toBe(false);
  expect(isServed("automations.patch", "automations")).toBe(false);
  expect(isServed("automations", "automations.patch")).toBe(false);
  expect(isServed("leadsx,xleads", "leads")).toBe(false);
});

describe("a part that is not served", () => {
  const automation = (id: string) => `/v1/automations/${id}`;
  const routes: [part: string, method: string, path: (id: string) => string, body?: unknown][] = [
    ["automations", "GET", () => "/v1/automations"],
    ["automations", "GET", automation],
    ["automations.patch", "PATCH", automation, { status: "paused" }],
    ["leads", "GET", () => "/v1/leads"],
    ["runs", "GET", () => "/v1/runs"],
    ["runs", "GET", (id) => `/v1/automations/${id}/runs`],
    ["webhooks", "GET", () => "/v1/webhooks"],
    ["webhooks", "POST", () => "/v1/webhooks", CREATION],
    ["webhooks", "DELETE", () => "/v1/webhooks/whk_1"],
  ];

  test.each(routes)(
    "%s: %s is answered like an unknown path, but only without it",
    async (part, method, path, body) => {
      const { workspaceId, apiKey } = await openListeningWorkspace();
      const url = path(await recordAutomation(workspaceId));
      const init = {
        method,
        ...(body !== undefined && {
          headers: { "Content-Type": "application/json" },
          body: JSON.stringify(body),
        }),
      };
      const off = openApi(apiKey, deployedWith({ SERVED_ROUTES: without(part) }));
      const answer = await off.send(url, init);
      expect(answer).toEqual(ROUTE_NOT_FOUND);
      expect(withoutRateLimit(answer)).toEqual(withoutRateLimit(await off.get("/v1/nowhere")));
      const only = openApi(apiKey, deployedWith({ SERVED_ROUTES: part }));
      expect(await only.send(url, init)).not.toEqual(ROUTE_NOT_FOUND);
    },
  );

  test("is 404 before its content type, body, parameters and resource are checked", async () => {
    const { workspaceId, apiKey } = await openListeningWorkspace();
    const draft = await recordAutomation(workspaceId, { status: "draft" });
    const api = openApi(apiKey, deployedWith({ SERVED_ROUTES: "" }));
    const odd = { headers: { "Content-Type": "text/plain" }, body: " ".repeat(20_000) };
    const answers = [
      await api.get("/v1/leads?limit=0"),
      await api.get("/v1/automations?cursor=garbage"),
      await api.get("/v1/automations/aut_unknown/runs?limit=0"),
      await api.send("/v1/webhooks", { method: "POST", ...odd }),
      await api.send(`/v1/automations/${draft}`, { method: "PATCH", ...odd }),
      await api.patch(`/v1/automations/${draft}`, {}),
      await api.delete("/v1/webhooks/whk_unknown"),
    ];
    for (const answer of answers) expect(answer).toEqual(ROUTE_NOT_FOUND);
  });

  test("still needs a key, and counts against its quota", async () => {
    const { apiKey } = await openListeningWorkspace({ requestsPerWindow: 2 });
    const fetch = deployedWith({ SERVED_ROUTES: "" });
    expect(await send("/v1/leads", {}, fetch)).toEqual(refusal(401, "invalid_api_key"));
    const api = openApi(apiKey, fetch);
    expect(rateLimitOf(await api.get("/v1/leads"))).toMatchObject({ limit: 2, remaining: 1 });
  });
});

describe("CRM automations that are not served", () => {
  const SERVED_ROUTES = without("automations.crm_source");

  /** The Platform API of such a deployment. */
  async function record(report: (platform: Platform) => Promise<{ ids: string[] }>) {
    const context = createExecutionContext();
    const { ids } = await report(new Platform(context, { ...env, SERVED_ROUTES }));
    await waitOnExecutionContext(context);
    return ids;
  }

  /** A workspace with a CRM automation between two social ones, each with a run. */
  async function openMixed() {
    const { workspaceId, apiKey, api } = await openListeningWorkspace();
    const ids: string[] = [];
    for (const type of ["lead_ads", "crm_source", "social_story"] as const)
      ids.push(await recordAutomation(workspaceId, { type, name: "Relance" }));
    const runs = ids.map((id, i) =>
      runReport(String(i), id, { occurredAt: `2026-01-0${i + 1}T00:00:00Z` }),
    );
    const { ids: runIds } = await exports.Platform.recordRuns({ workspaceId, runs });
    return {
      workspaceId,
      everywhere: api,
      api: openApi(apiKey, deployedWith({ SERVED_ROUTES })),
      crmSource: ids[1] as string,
      social: [ids[0] as string, ids[2] as string],
      socialRuns: [runIds[0] as string, runIds[2] as string],
    };
  }

  test("appear in no list, and make no page shorter", async () => {
    const { api, everywhere, social, crmSource } = await openMixed();
    const idsOf = async (from: typeof api, query: string) => {
      const { body } = await from.get<{ data: { id: string }[]; has_more: boolean }>(
        `/v1/automations${query}`,
      );
      return [body.data.map(({ id }) => id).toSorted(), body.has_more];
    };
    expect(await idsOf(api, "")).toEqual([social.toSorted(), false]);
    expect(await idsOf(api, "?limit=2")).toEqual([social.toSorted(), false]);
    expect(await idsOf(everywhere, "")).toEqual([[...social, crmSource].toSorted(), false]);
  });

  test("are answered like an unknown id: detail, PATCH and runs", async () => {
    const { workspaceId, api, crmSource } = await openMixed();
    const before = await eventsOf(workspaceId);
    const notFound = refusal(404, "automation_not_found");
    const unknown = `aut_${"0".repeat(25)}`;
    for (const suffix of ["", "/runs"]) {
      const answer = await api.get(`/v1/automations/${crmSource}${suffix}`);
      expect(answer).toEqual(notFound);
      expect(withoutRateLimit(answer)).toEqual(
        withoutRateLimit(await api.get(`/v1/automations/${unknown}${suffix}`)),
      );
    }
    expect(await api.patch(`/v1/automations/${crmSource}`, { status: "paused" })).toEqual(notFound);
    expect(await eventsOf(workspaceId)).toEqual(before);
  });

  test("have no runs in the workspace's list, while the others do", async () => {
    const { api, socialRuns } = await openMixed();
    const { body } = await api.get<{ data: { id: string }[] }>("/v1/runs?limit=2");
    expect(body).toEqual({
      ...EMPTY_PAGE,
      data: socialRuns.toReversed().map((id) => expect.objectContaining({ id })),
    });
  });

  test("cause no event, while the others do", async () => {
    const { workspaceId } = await openListeningWorkspace();
    const crm = { type: "crm_source", name: "Relance" } as const;
    const automations = (status: "active" | "paused") => [
      automationReport("crm", { ...crm, status }),
      automationReport("social", { status }),
    ];
    const [crmSource, social] = await record((platform) =>
      platform.recordAutomations({ workspaceId, automations: automations("active") }),
    );
    await record((platform) =>
      platform.recordAutomations({ workspaceId, automations: automations("paused") }),
    );
    const [, run] = await record((platform) =>
      platform.recordRuns({
        workspaceId,
        runs: [runReport("1", crmSource as string), runReport("2", social as string)],
      }),
    );
    expect((await eventsOf(workspaceId)).map(({ type, data }) => [type, data.id])).toEqual([
      ["automation.status_changed", social],
      ["run.completed", run],
    ]);
  });

  test("do not affect CRM leads", async () => {
    const { workspaceId, apiKey } = await openListeningWorkspace();
    const leads = [leadReport("1", { source: "crm" })];
    const ids = await record((platform) => platform.recordLeads({ workspaceId, leads }));
    const api = openApi(apiKey, deployedWith({ SERVED_ROUTES }));
    expect(await api.get("/v1/leads")).toEqual(
      success(200, {
        ...EMPTY_PAGE,
        data: [expect.objectContaining({ id: ids[0], source: "crm" })],
      }),
    );
  });
});
