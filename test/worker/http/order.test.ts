import { exports } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { openWorkspace, recordAutomation, refusal, send } from "../../support/api.ts";

describe("the order of the checks", () => {
  const TEXT = { "Content-Type": "text/plain" };
  const JSON_TYPE = { "Content-Type": "application/json" };
  const UNKNOWN = "/v1/automations/aut_unknown";

  test("key before route: an unknown path without a key is 401", async () => {
    for (const path of ["/v1", "/v1/", "/v1/nowhere", "/v1/leads/lea_1"])
      expect(await send(path), path).toEqual(refusal(401, "invalid_api_key"));
    expect(await send("/v1/leads", { method: "DELETE" })).toEqual(refusal(401, "invalid_api_key"));
  });

  test("key before content type, body and parameters", async () => {
    const init = { method: "POST", headers: TEXT, body: " ".repeat(20_000) };
    expect(await send("/v1/webhooks", init)).toEqual(refusal(401, "invalid_api_key"));
    expect(await send("/v1/leads?limit=0")).toEqual(refusal(401, "invalid_api_key"));
  });

  test("no spelling of the path bypasses the key", async () => {
    for (const path of ["/%76%31/leads", "/v%31/leads", "/v1/%6ceads", "/v1\\leads", "/./v1/leads"])
      expect(await send(path), path).toEqual(refusal(401, "invalid_api_key"));
  });

  test("key before workspace: a revoked key of a workspace without access is 401", async () => {
    const { workspaceId, keyId, api } = await openWorkspace();
    await exports.Platform.setWorkspaceAccess({ workspaceId, granted: false });
    await exports.Platform.revokeApiKey({ keyId });
    expect(await api.get("/v1/leads")).toEqual(refusal(401, "invalid_api_key"));
  });

  test("workspace before quota and before route", async () => {
    const { workspaceId, api } = await openWorkspace({ requestsPerWindow: 1 });
    await api.get("/v1/leads");
    expect((await api.get("/v1/leads")).status).toBe(429);
    await exports.Platform.setWorkspaceAccess({ workspaceId, granted: false });
    expect(await api.get("/v1/leads")).toEqual(refusal(403, "workspace_access_denied"));
    expect(await api.get("/v1/nowhere")).toEqual(refusal(403, "workspace_access_denied"));
  });

  test("quota before route: an unknown path is 429 if the quota is used up", async () => {
    const { api } = await openWorkspace({ requestsPerWindow: 1 });
    await api.get("/v1/leads");
    expect((await api.get("/v1/nowhere")).status).toBe(429);
  });

  test("route before content type and size", async () => {
    const { api } = await openWorkspace();
    const init = { method: "POST", headers: TEXT, body: " ".repeat(20_000) };
    expect(await api.send("/v1/nowhere", init)).toEqual(refusal(404, "route_not_found"));
    expect(await api.send("/v1/leads", init)).toEqual(refusal(404, "route_not_found"));
  });

  test("content type before size, and before the body's content", async () => {
    const { api } = await openWorkspace();
    const unsupported = refusal(415, "invalid_request", { reason: "unsupported_media_type" });
    for (const body of [" ".repeat(20_000), "{", '{"status":"nonsense"}'])
      expect(await api.send(UNKNOWN, { method: "PATCH", headers: TEXT, body })).toEqual(
        unsupported,
      );
  });

  test("size before the body's content", async () => {
    const { api } = await openWorkspace();
    const init = { method: "PATCH", headers: JSON_TYPE, body: "{".repeat(16_385) };
    expect(await api.send(UNKNOWN, init)).toEqual(
      refusal(413, "invalid_request", { reason: "body_too_large", max: 16_384 }),
    );
  });

  test("body and parameters before the resource", async () => {
    const { api } = await openWorkspace();
    expect(await api.patch(UNKNOWN, { status: "nonsense" })).toEqual(
      refusal(400, "invalid_request", {
        parameter: "status",
        reason: "unknown_value",
        allowed: ["active", "paused"],
      }),
    );
    expect(await api.get(`${UNKNOWN}/runs?cursor=nonsense`)).toEqual(
      refusal(400, "invalid_request", { parameter: "cursor", reason: "unreadable" }),
    );
  });

  test("body before status: nobody can set `draft`, not even on a draft", async () => {
    const { workspaceId, api } = await openWorkspace();
    const id = await recordAutomation(workspaceId, { status: "draft" });
    expect(await api.patch(`/v1/automations/${id}`, { status: "draft" })).toEqual(
      refusal(400, "invalid_request", {
        parameter: "status",
        reason: "unknown_value",
        allowed: ["active", "paused"],
      }),
    );
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
