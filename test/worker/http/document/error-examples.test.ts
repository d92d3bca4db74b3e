import { env } from "cloudflare:workers";
import { expect, test, vi } from "vitest";
import { SUBSCRIPTIONS_MAX } from "../../../../src/contract/limits.ts";
import {
  deployedWith,
  openApi,
  openWorkspace,
  Platform,
  recordAutomation,
  send,
} from "../../../support/api.ts";
import { operationsOf } from "../../../support/document.ts";
import { interposed } from "../../../support/interposed.ts";

const { body: document } = await send<object>("/openapi.json");

const [good, crowded] = [await openWorkspace(), await openWorkspace()];
const active = await recordAutomation(good.workspaceId);
const draft = await recordAutomation(good.workspaceId, { status: "draft" });
// As many subscriptions as a workspace may have.
for (let i = 0; i < SUBSCRIPTIONS_MAX; i++) {
  const body = { url: `https://hooks.example.com/${i}`, events: ["lead.created"] };
  const headers = i === 0 ? { "Idempotency-Key": "used" } : undefined;
  expect((await crowded.api.post("/v1/webhooks", body, headers)).status).toBe(201);
}
async function deniedKey() {
  const { workspaceId, apiKey } = await openWorkspace();
  await Platform.setWorkspaceAccess({ workspaceId, granted: false });
  return apiKey;
}

async function usedUpKey() {
  const { api, apiKey } = await openWorkspace({ requestsPerWindow: 1 });
  await api.get("/v1/leads");
  return apiKey;
}

/** How an error is caused: what differs from a valid request, who sends it, and where. */
interface Fault {
  key?: () => Promise<string> | string;
  id?: string;
  headers?: Record<string, string>;
  query?: string;
  body?: string;
  vars?: Partial<Env>;
}
const events = ["lead.created"];
const FAULTS: Record<string, Fault> = {
  limit_out_of_range: { query: "?limit=0" },
  cursor_unreadable: { query: "?cursor=x" },
  status_unknown: { body: '{"status":"stopped"}' },
  status_missing: { body: "{}" },
  property_unknown: { body: '{"status":"paused","colour":"blue"}' },
  url_not_https: { body: JSON.stringify({ url: "http://hooks.example.com/", events }) },
  event_unknown: { body: '{"url":"https://hooks.example.com/","events":["lead.invented"]}' },
  too_many_subscriptions: { key: () => crowded.apiKey },
  idempotency_key_reused: { key: () => crowded.apiKey, headers: { "Idempotency-Key": "used" } },
  body_too_large: { body: " ".repeat(16_385) },
  unsupported_media_type: { headers: { "Content-Type": "text/plain" } },
  invalid_api_key: { key: () => "key_live_nonsense" },
  workspace_access_denied: { key: deniedKey },
  route_not_found: { vars: { SERVED_ROUTES: "" } },
  automation_not_controllable: { id: draft },
  rate_limited: { key: usedUpKey },
  internal_error: { vars: { DB: interposed(env.DB, () => Promise.reject(new Error("down"))) } },
};

/** Whether it is caused by an unknown id in the path. */
const isMissing = (name: string) => name.endsWith("_not_found") && name !== "route_not_found";

const cases = operationsOf(document).flatMap((operation) =>
  Object.entries(operation.responses).flatMap(([status, { content }]) =>
    Object.entries(content?.["application/json"].examples ?? {}).map(([name, { value }]) => {
      return { name, id: operation.operationId, status: Number(status), operation, value };
    }),
  ),
);

test("every error of every operation has an example", () => {
  expect(cases.length).toBeGreaterThan(55);
  const others = cases.map(({ name }) => name).filter((name) => !isMissing(name));
  expect(new Set(others)).toEqual(new Set(Object.keys(FAULTS)));
});

test.each(cases)(
  "an example of an error is what the service responds: $name of $id",
  async ({ name, status, operation, value }) => {
    vi.spyOn(console, "error").mockImplementation(() => {});
    const { method, path, parameters, requestBody } = operation;
    const { key, id, headers, query = "", body, vars = {} } = FAULTS[name] ?? {};
    const example = parameters.find((one) => one.in === "path")?.example;
    const prefix = String(example).slice(0, 4);
    const valid = prefix === "aut_" ? active : prefix + "0".repeat(25);
    const given = isMissing(name) ? `${prefix}unknown` : (id ?? valid);
    const documented = JSON.stringify(requestBody?.content["application/json"].example);
    const api = openApi(await (key?.() ?? good.apiKey), deployedWith(vars));
    const answer = await api.send(path.replace("{id}", given) + query, {
      method,
      ...(requestBody && {
        body: body ?? documented,
        headers: { "Content-Type": "application/json", ...headers },
      }),
    });
    if (name === "rate_limited") {
      // Of another second.
      const { details } = (answer.body as { error: { details: object } }).error;
      expect(details).toEqual({ retry_after_seconds: Number(answer.headers["retry-after"]) });
      Object.assign(details, { retry_after_seconds: 42 });
    }
    expect([answer.status, answer.body]).toEqual([status, value]);
  },
);
