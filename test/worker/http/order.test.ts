import { exports } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { invalid, openWorkspace, recordAutomation, refusal, send } from "../../support/api.ts";

describe("the order of the checks", () => {
  const TEXT = { "Content-Type": "text/plain" };
  const JSON_TYPE = { "Content-Type": "application/json" };
  const UNKNOWN = "/v1/automations/aut_unknown";
  const NO_KEY = refusal(401, "invalid_api_key");
  const NO_ROUTE = refusal(404, "route_not_found");
  const UNKNOWN_STATUS = invalid("status", "unknown_value", { allowed: ["active", "paused"] });

  test("key before route: an unknown path without a key is 401, however it is spelt", async () => {
    const spellings = ["/%76%31/leads", "/v%31/leads", "/v1/%6ceads", "/v1\\leads", "/./v1/leads"];
    for (const path of ["/v1", "/v1/", "/v1/nowhere", ...spellings])
      expect(await send(path), path).toEqual(NO_KEY);
    expect(await send("/v1/leads", { method: "DELETE" })).toEqual(NO_KEY);
  });

  test("key before content type, body and parameters", async () => {
    const init = { method: "POST", headers: TEXT, body: " ".repeat(20_000) };
    expect(await send("/v1/webhooks", init)).toEqual(NO_KEY);
    expect(await send("/v1/leads?limit=0")).toEqual(NO_KEY);
  });

  test("key before workspace: a revoked key of a workspace without access is 401", async () => {
    const { workspaceId, keyId, api } = await openWorkspace();
    await exports.Platform.setWorkspaceAccess({ workspaceId, granted: false });
    await exports.Platform.revokeApiKey({ keyId });
    expect(await api.get("/v1/leads")).toEqual(NO_KEY);
  });

  test("workspace before quota, quota before route", async () => {
    const { workspaceId, api } = await openWorkspace({ requestsPerWindow: 1 });
    await api.get("/v1/leads");
    expect((await api.get("/v1/nowhere")).status).toBe(429);
    await exports.Platform.setWorkspaceAccess({ workspaceId, granted: false });
    expect(await api.get("/v1/leads")).toEqual(refusal(403, "workspace_access_denied"));
    expect(await api.get("/v1/nowhere")).toEqual(refusal(403, "workspace_access_denied"));
  });

  test("route before content type and size", async () => {
    const { api } = await openWorkspace();
    const init = { method: "POST", headers: TEXT, body: " ".repeat(20_000) };
    expect(await api.send("/v1/nowhere", init)).toEqual(NO_ROUTE);
    expect(await api.send("/v1/leads", init)).toEqual(NO_ROUTE);
  });

  test("content type before size before the body's content", async () => {
    const { api } = await openWorkspace();
    const unsupported = refusal(415, "invalid_request", { reason: "unsupported_media_type" });
    for (const body of [" ".repeat(20_000), "{", '{"status":"nonsense"}'])
      expect(await api.send(UNKNOWN, { method: "PATCH", headers: TEXT, body })).toEqual(
        unsupported,
      );
    const init = { method: "PATCH", headers: JSON_TYPE, body: "{".repeat(16_385) };
    expect((await api.send(UNKNOWN, init)).status).toBe(413);
  });

  test("body and parameters before the resource, and before its status", async () => {
    const { workspaceId, api } = await openWorkspace();
    const draft = `/v1/automations/${await recordAutomation(workspaceId, { status: "draft" })}`;
    for (const path of [UNKNOWN, draft])
      expect(await api.patch(path, { status: "draft" })).toEqual(UNKNOWN_STATUS);
    const unreadable = invalid("cursor", "unreadable");
    expect(await api.get(`${UNKNOWN}/runs?cursor=nonsense`)).toEqual(unreadable);
  });

  test("resource before status: another workspace's draft is 404", async () => {
    const [one, other] = await Promise.all([openWorkspace(), openWorkspace()]);
    const id = await recordAutomation(one.workspaceId, { status: "draft" });
    expect(await other.api.patch(`/v1/automations/${id}`, { status: "active" })).toEqual(
      refusal(404, "automation_not_found"),
    );
    expect(await one.api.patch(`/v1/automations/${id}`, { status: "active" })).toEqual(
      refusal(422, "automation_not_controllable"),
    );
  });
});
