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
  openWorkspace,
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
  const creation = { url: "https://ok-served.example/", events: ["lead.created"] };
  test.each<[part: string, method: string, path: string, body?: object]>([
    ["automations", "GET", ""],
    ["automations", "GET", "/{id}"],
    ["automations.patch", "PATCH", "/{id}", { status: "paused" }],
    ["leads", "GET", "/v1/leads"],
    ["runs", "GET", "/v1/runs"],
    ["runs", "GET", "/{id}/runs"],
    ["webhooks", "GET", "/v1/webhooks"],
    ["webhooks", "POST", "/v1/webhooks", creation],
    ["webhooks", "DELETE", "/v1/webhooks/whk_1"],
  ])(
    "%s: %s %s is answered like an unknown path, but only without it, whatever is sent",
    async (part, method, path, body) => {
      const { workspaceId, apiKey } = await openWorkspace();
      const id = await recordAutomation(workspaceId, { status: "draft" });
      const url = path.startsWith("/v1") ? path : `/v1/automations${path.replace("{id}", id)}`;
      const off = openApi(apiKey, deployedWith({ SERVED_ROUTES: without(part) }));
      const json = { headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
      const answer = await off.send(url, { method, ...(body && json) });
      expect(answer).toEqual(ROUTE_NOT_FOUND);
      expect(withoutRateLimit(answer)).toEqual(withoutRateLimit(await off.get("/v1/nowhere")));
      const odd = { headers: { "Content-Type": "text/plain" }, body: " ".repeat(20_000) };
      const wrong = await off.send(`${url}?limit=0&cursor=x`, { method, ...(body && odd) });
      expect(wrong).toEqual(ROUTE_NOT_FOUND);
      const only = openApi(apiKey, deployedWith({ SERVED_ROUTES: part }));
      expect(await only.send(url, { method, ...(body && json) })).not.toEqual(ROUTE_NOT_FOUND);
    },
  );

  test("still needs a key, and counts against its quota", async () => {
    const { apiKey } = await openWorkspace({ requestsPerWindow: 2 });
    const fetch = deployedWith({ SERVED_ROUTES: "" });
    expect(await send("/v1/leads", {}, fetch)).toEqual(refusal(401, "invalid_api_key"));
    const answer = await openApi(apiKey, fetch).get("/v1/leads");
    expect(rateLimitOf(answer)).toMatchObject({ limit: 2, remaining: 1 });
  });
});

describe("CRM automations that are not served", () => {
  const SERVED_ROUTES = without("automations.crm_source");

  test("are answered like an unknown id, and are in no list, which has no shorter pages", async () => {
    const { workspaceId, apiKey, api: everywhere } = await openListeningWorkspace();
    const api = openApi(apiKey, deployedWith({ SERVED_ROUTES }));
    const ids: string[] = [];
    for (const type of ["lead_ads", "crm_source", "social_story"] as const)
      ids.push(await recordAutomation(workspaceId, { type, name: "Relance" }));
    const [, crm] = ids;
    const social = ids.filter((id) => id !== crm);
    const runs = ids.map((id, i) =>
      runReport(String(i), id, { occurredAt: `2026-01-0${i + 1}T00:00:00Z` }),
    );
    const recorded = await exports.Platform.recordRuns({ workspaceId, runs });
    const before = await eventsOf(workspaceId);

    const listed = async (path: string, from = api) => {
      const { body } = await from.get<{ data: { id: string }[]; has_more: boolean }>(path);
      return [...body.data.map(({ id }) => id).toSorted(), body.has_more];
    };
    for (const query of ["", "?limit=2"])
      expect(await listed(`/v1/automations${query}`)).toEqual([...social.toSorted(), false]);
    expect(await listed("/v1/automations", everywhere)).toEqual([...ids.toSorted(), false]);
    const [first = "", , third = ""] = recorded.ids;
    expect(await listed("/v1/runs?limit=2")).toEqual([...[first, third].toSorted(), false]);

    const notFound = refusal(404, "automation_not_found");
    for (const suffix of ["", "/runs"]) {
      const answer = await api.get(`/v1/automations/${crm}${suffix}`);
      expect(answer).toEqual(notFound);
      const unknown = await api.get(`/v1/automations/aut_${"0".repeat(25)}${suffix}`);
      expect(withoutRateLimit(answer)).toEqual(withoutRateLimit(unknown));
    }
    expect(await api.patch(`/v1/automations/${crm}`, { status: "paused" })).toEqual(notFound);
    expect(await eventsOf(workspaceId)).toEqual(before);
  });

  test("cause no event, while the others and CRM leads do", async () => {
    const { workspaceId, apiKey } = await openListeningWorkspace();
    const context = createExecutionContext();
    const platform = new Platform(context, { ...env, SERVED_ROUTES });
    const record = (status: "active" | "paused") =>
      platform.recordAutomations({
        workspaceId,
        automations: [
          automationReport("crm", { type: "crm_source", name: "Relance", status }),
          automationReport("social", { status }),
        ],
      });
    await record("active");
    const [crm = "", social = ""] = (await record("paused")).ids;
    const runs = [runReport("1", crm), runReport("2", social)];
    const [, run] = (await platform.recordRuns({ workspaceId, runs })).ids;
    const leads = [leadReport("1", { source: "crm" })];
    const [lead] = (await platform.recordLeads({ workspaceId, leads })).ids;
    await waitOnExecutionContext(context);
    expect((await eventsOf(workspaceId)).map(({ type, data }) => [type, data.id])).toEqual([
      ["automation.status_changed", social],
      ["run.completed", run],
      ["lead.created", lead],
    ]);
    const shown = [expect.objectContaining({ id: lead, source: "crm" })];
    expect(await openApi(apiKey, deployedWith({ SERVED_ROUTES })).get("/v1/leads")).toEqual(
      success(200, { ...EMPTY_PAGE, data: shown }),
    );
  });
});
