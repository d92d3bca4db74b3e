import { env } from "cloudflare:workers";
import { expect, test } from "vitest";
import {
  automationReport,
  deployedWith,
  errorOf,
  eventsOf,
  listAll,
  openApi,
  openListeningWorkspace,
  Platform,
  platformOf,
  refusal,
  runReport,
  send,
} from "../../support/api.ts";
import { type Operation, operationsOf } from "../../support/document.ts";
import { idFor, openFilledWorkspace } from "../../support/filled.ts";

const ALL = env.SERVED_ROUTES.split(",");
const { body: document } = await send<object>("/openapi.json");
const { apiKey, ids } = await openFilledWorkspace();

/** `SERVED_ROUTES` without one part; spaces do not matter. */
const without = (part: string) => ALL.filter((name) => name !== part).join(", ");

/** The names of the tools that a deployment offers over MCP. */
async function toolsOf(SERVED_ROUTES: string): Promise<string[]> {
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
      expect((await toolsOf(SERVED_ROUTES)).includes(operation.operationId)).toBe(
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

test("Without automations.crm_source, no such automation is recorded, and earlier ones stay visible", async () => {
  const { workspaceId, apiKey: key, api: everywhere } = await openListeningWorkspace();
  const SERVED_ROUTES = without("automations.crm_source");
  const api = openApi(key, deployedWith({ SERVED_ROUTES }));
  const platform = platformOf({ ...env, SERVED_ROUTES });
  const crm = automationReport("crm", { type: "crm_source", name: "Relance" });
  const recordBoth = (one: Pick<typeof platform, "recordAutomations">) =>
    one.recordAutomations({ workspaceId, automations: [automationReport("1"), crm] });
  const error = await errorOf(recordBoth(platform));
  expect(error).toContain("recordAutomations: automations[1].type: crm_source is not served");
  expect(error).toContain("SERVED_ROUTES");
  expect((await everywhere.get("/v1/automations")).body).toMatchObject({ data: [] });
  const { ids: recorded } = await recordBoth(Platform);
  const crmId = String(recorded[1]);
  const path = `/v1/automations/${crmId}`;
  const runs = [runReport("1", crmId)];
  expect(await platform.recordRuns({ workspaceId, runs })).toMatchObject({ created: 1 });
  for (const list of [`${path}/runs`, "/v1/runs"])
    expect((await api.get(list)).body).toMatchObject({ data: [{ automation_id: crmId }] });
  expect((await api.patch(path, { status: "paused" })).status).toBe(200);
  expect(await listAll(api, "automations")).toHaveLength(2);
  const types = (await eventsOf(workspaceId)).map(({ type }) => type);
  expect(types).toEqual(["run.completed", "automation.status_changed"]);
});
