import { createExecutionContext, waitOnExecutionContext } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { expect, test } from "vitest";
import { Platform } from "../../../src/platform/entrypoint.ts";
import {
  automationReport,
  deployedWith,
  eventsOf,
  leadReport,
  openApi,
  openListeningWorkspace,
  refusal,
  runReport,
  send,
} from "../../support/api.ts";
import { type Operation, operationsOf } from "../../support/document.ts";
import { idFor, openFilledWorkspace } from "../../support/filled.ts";

const ALL = env.SERVED_ROUTES.split(",");
const { body: document } = await send<object>("/openapi.json");

/** `SERVED_ROUTES` without one part; spaces do not matter. */
const without = (part: string) => ALL.filter((name) => name !== part).join(", ");

/** The names of the tools that a deployment offers over MCP. */
async function toolsOf(apiKey: string, SERVED_ROUTES: string): Promise<string[]> {
  const request = new Request("https://api.example/mcp", {
    method: "POST",
    headers: {
      ...{ Authorization: `Bearer ${apiKey}`, "Content-Type": "application/json" },
      Accept: "application/json, text/event-stream",
      "MCP-Protocol-Version": "2025-11-25",
    },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/list" }),
  });
  const answer = await deployedWith({ SERVED_ROUTES })(request);
  const text = (await answer.text()).replace(/^.*?data: /s, "");
  return JSON.parse(text).result.tools.map(({ name }: { name: string }) => name);
}

/** The part that an operation belongs to: that of its noun and method, if there is one, or of its noun. */
function partOf({ tags: [noun = ""], method }: Operation): string {
  const own = `${noun}.${method}`.toLowerCase();
  return ALL.includes(own) ? own : noun.toLowerCase();
}

test.each(operationsOf(document))(
  "$operationId is served with its part alone, and is like an unknown path without it, whatever is sent",
  async (operation) => {
    const { method, path, requestBody } = operation;
    const part = partOf(operation);
    const { apiKey, ids } = await openFilledWorkspace();
    const ask = (SERVED_ROUTES: string, query = "", text?: string, type = "application/json") => {
      const body = text ?? JSON.stringify(requestBody?.content["application/json"].example);
      const init = { method, ...(requestBody && { body, headers: { "Content-Type": type } }) };
      const api = openApi(apiKey, deployedWith({ SERVED_ROUTES }));
      return api.send(path.replace("{id}", idFor(operation, ids)) + query, init);
    };
    const notFound = refusal(404, "route_not_found");
    expect(await ask(without(part))).toEqual(notFound);
    // An agent's list of tools is what is served.
    for (const SERVED_ROUTES of [part, without(part)])
      expect((await toolsOf(apiKey, SERVED_ROUTES)).includes(operation.operationId)).toBe(
        SERVED_ROUTES === part,
      );
    const large = " ".repeat(20_000);
    const odd = await ask(without(part), "?limit=0&cursor=x", large, "text/plain");
    expect(odd).toEqual(notFound);
    expect((await ask(part)).status).toBeLessThan(300);
    const anonymous = await send(path, { method }, deployedWith({ SERVED_ROUTES: "" }));
    expect(anonymous).toEqual(refusal(401, "invalid_api_key"));
  },
);

test("CRM automations that are not served look unknown, shorten no page and cause no event", async () => {
  const { workspaceId, apiKey, api: everywhere } = await openListeningWorkspace();
  const SERVED_ROUTES = without("automations.crm_source");
  const api = openApi(apiKey, deployedWith({ SERVED_ROUTES }));
  const context = createExecutionContext();
  const platform = new Platform(context, { ...env, SERVED_ROUTES });
  const report = (status: "active" | "paused") =>
    platform.recordAutomations({
      workspaceId,
      automations: [
        automationReport("1", { status }),
        automationReport("crm", { type: "crm_source", name: "Relance", status }),
        automationReport("2", { status }),
      ],
    });
  await report("active");
  const { ids } = await report("paused");
  const [first, crm, second] = ids;
  const runs = ids.map((id, i) =>
    runReport(String(i), id, { occurredAt: `2026-01-0${i + 1}T00:00:00Z` }),
  );
  const [run, , lastRun] = (await platform.recordRuns({ workspaceId, runs })).ids;
  const leads = [leadReport("1", { source: "crm" })];
  const [lead] = (await platform.recordLeads({ workspaceId, leads })).ids;
  await waitOnExecutionContext(context);

  const listed = async (path: string, from = api) => {
    const { body } = await from.get<{ data: { id: string }[]; has_more: boolean }>(`/v1/${path}`);
    expect(body.has_more).toBe(false);
    return new Set(body.data.map(({ id }) => id));
  };
  for (const query of ["", "?limit=2"])
    expect(await listed(`automations${query}`)).toEqual(new Set([first, second]));
  expect(await listed("automations", everywhere)).toEqual(new Set(ids));
  expect(await listed("runs?limit=2")).toEqual(new Set([run, lastRun]));
  expect(await listed("leads")).toEqual(new Set([lead]));
  const path = `/v1/automations/${crm}`;
  for (const answer of [
    api.get(path),
    api.get(`${path}/runs`),
    api.patch(path, { status: "active" }),
  ])
    expect(await answer).toEqual(refusal(404, "automation_not_found"));
  const announced = (await eventsOf(workspaceId)).map(({ data }) => data.id);
  expect(announced.toSorted()).toEqual([first, second, run, lastRun, lead].toSorted());
});
