import { env, exports } from "cloudflare:workers";
import { beforeAll, describe, expect, test, vi } from "vitest";
import {
  deployedWith,
  openApi,
  openWorkspace,
  recordAutomation,
  send,
} from "../../../support/api.ts";
import { type Operation, operationsOf } from "../../../support/document.ts";
import { interposed } from "../../../support/interposed.ts";

const { body: document } = await send<object>("/openapi.json");
const operations = operationsOf(document);

// biome-ignore lint/suspicious/noExplicitAny: examples are compared by shape
type Json = any;

describe("an example of an error is what the service answers", () => {
  const DOWN = interposed(env.DB, () => Promise.reject(new Error("down")));
  let id: Record<"active" | "draft", string>;
  let good: string;
  let crowded: string;

  beforeAll(async () => {
    const { workspaceId, apiKey } = await openWorkspace();
    good = apiKey;
    id = {
      active: await recordAutomation(workspaceId),
      draft: await recordAutomation(workspaceId, { status: "draft" }),
    };
    const other = await openWorkspace();
    crowded = other.apiKey;
    const url = (i: number) => `https://hooks.example.com/${i}`;
    for (let i = 0; i < 20; i++)
      await other.api.send("/v1/webhooks", {
        method: "POST",
        headers: {
          "Content-Type": "application/json",
          ...(i === 0 && { "Idempotency-Key": "used" }),
        },
        body: JSON.stringify({ url: url(i), events: ["lead.created"] }),
      });
  });

  /** How each error is caused: what differs from a valid request, who sends it, and where. */
  type Fault = {
    key?: () => Promise<string> | string;
    id?: () => string;
    headers?: Record<string, string>;
    query?: string;
    body?: string;
    type?: string;
    fetch?: () => (request: Request) => Promise<Response>;
  };
  const events = ["lead.created"];
  const FAULTS: Record<string, Fault> = {
    limit_out_of_range: { query: "?limit=0" },
    cursor_unreadable: { query: "?cursor=x" },
    status_unknown: { body: '{"status":"stopped"}' },
    status_missing: { body: "{}" },
    property_unknown: { body: '{"status":"paused","colour":"blue"}' },
    url_not_https: { body: JSON.stringify({ url: "http://hooks.example.com/", events }) },
    event_unknown: { body: '{"url":"https://hooks.example.com/","events":["lead.deleted"]}' },
    too_many_subscriptions: { key: () => crowded },
    idempotency_key_reused: {
      key: () => crowded,
      headers: { "Idempotency-Key": "used" },
    },
    body_too_large: { body: " ".repeat(16_385) },
    unsupported_media_type: { type: "text/plain" },
    invalid_api_key: { key: () => "key_live_nonsense" },
    workspace_access_denied: {
      key: async () => {
        const { workspaceId, apiKey } = await openWorkspace();
        await exports.Platform.setWorkspaceAccess({ workspaceId, granted: false });
        return apiKey;
      },
    },
    route_not_found: { fetch: () => deployedWith({ SERVED_ROUTES: "" }) },
    automation_not_controllable: { id: () => id.draft },
    rate_limited: {
      key: async () => {
        const { api, apiKey } = await openWorkspace({ requestsPerWindow: 1 });
        await api.get("/v1/leads");
        return apiKey;
      },
    },
    internal_error: { fetch: () => deployedWith({ DB: DOWN }) },
  };

  /** Whether it is caused by an unknown id in the path. */
  const isMissing = (name: string) => name.endsWith("_not_found") && name !== "route_not_found";

  const cases = operations.flatMap((operation) =>
    Object.entries(operation.responses).flatMap(([status, { content }]) =>
      Object.entries(content?.["application/json"].examples ?? {}).map(
        ([name, { value }]): [string, string, number, Operation, unknown] => [
          name,
          operation.operationId,
          Number(status),
          operation,
          value,
        ],
      ),
    ),
  );

  test("every error of every operation has an example", () => {
    expect(cases.length).toBeGreaterThan(55);
    const others = cases.map(([name]) => name).filter((name) => !isMissing(name));
    expect(new Set(others)).toEqual(new Set(Object.keys(FAULTS)));
  });

  test.each(cases)(
    "%s of %s: %d",
    async (name, _, status, { method, path, parameters, requestBody }, value) => {
      vi.spyOn(console, "error").mockImplementation(() => {});
      const fault = FAULTS[name] ?? {};
      const key = await (fault.key?.() ?? good);
      const api = fault.fetch ? openApi(key, fault.fetch()) : openApi(key);
      const example = parameters.find((one) => one.in === "path")?.example;
      const prefix = String(example).slice(0, 4);
      const valid = prefix === "aut_" ? id.active : prefix + "0".repeat(25);
      const given = isMissing(name) ? `${prefix}unknown` : (fault.id?.() ?? valid);
      const to = path.replace("{id}", given) + (fault.query ?? "");
      const documented = JSON.stringify(requestBody?.content["application/json"].example);
      const answer = await api.send<Json>(to, {
        method,
        ...(requestBody && {
          body: fault.body ?? documented,
          headers: { "Content-Type": fault.type ?? "application/json", ...fault.headers },
        }),
      });
      expect(answer.status).toBe(status);
      if (name === "rate_limited") {
        const { details, ...error } = answer.body.error;
        expect(details).toEqual({ retry_after_seconds: Number(answer.headers["retry-after"]) });
        expect({ error: { ...error, details: { retry_after_seconds: 42 } } }).toEqual(value);
      } else expect(answer.body).toEqual(value);
      vi.restoreAllMocks();
    },
  );
});
