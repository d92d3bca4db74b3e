import { exports } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { invalid, openWorkspace, recordAutomation, refusal, send } from "../../support/api.ts";

describe("the order of the checks", () => {
  const UNKNOWN = "/v1/automations/aut_unknown";
  const NO_KEY = refusal(401, "invalid_api_key");
  const NO_ACCESS = refusal(403, "workspace_access_denied");
  const NO_ROUTE = refusal(404, "route_not_found");
  const NO_AUTOMATION = refusal(404, "automation_not_found");
  /** A body of another type that is too large. */
  const odd = (method: string, body = " ".repeat(20_000)) => ({
    method,
    headers: { "Content-Type": "text/plain" },
    body,
  });

  test("key before route, content type, body and parameters, however the path is spelt", async () => {
    const spellings = ["/%76%31/leads", "/v%31/leads", "/v1/%6ceads", "/v1\\leads", "/./v1/leads"];
    for (const path of ["/v1", "/v1/", "/v1/nowhere", "/v1/leads?limit=0", ...spellings])
      expect(await send(path), path).toEqual(NO_KEY);
    expect(await send("/v1/leads", { method: "DELETE" })).toEqual(NO_KEY);
    expect(await send("/v1/webhooks", odd("POST"))).toEqual(NO_KEY);
  });

  test("key before workspace before quota before route", async () => {
    const { workspaceId, keyId, api } = await openWorkspace({ requestsPerWindow: 1 });
    await api.get("/v1/leads");
    expect((await api.get("/v1/nowhere")).status).toBe(429);
    await exports.Platform.setWorkspaceAccess({ workspaceId, granted: false });
    for (const path of ["/v1/leads", "/v1/nowhere"]) expect(await api.get(path)).toEqual(NO_ACCESS);
    await exports.Platform.revokeApiKey({ keyId });
    expect(await api.get("/v1/leads")).toEqual(NO_KEY);
  });

  test("route before content type before size before the body's content", async () => {
    const { api } = await openWorkspace();
    for (const path of ["/v1/nowhere", "/v1/leads"])
      expect(await api.send(path, odd("POST"))).toEqual(NO_ROUTE);
    const unsupported = refusal(415, "invalid_request", { reason: "unsupported_media_type" });
    for (const body of [" ".repeat(20_000), "{", '{"status":"nonsense"}'])
      expect(await api.send(UNKNOWN, odd("PATCH", body))).toEqual(unsupported);
    expect((await api.patch(UNKNOWN, "{".repeat(16_385))).status).toBe(413);
  });

  test("body and parameters before the resource, and that before its status", async () => {
    const [{ workspaceId, api }, other] = [await openWorkspace(), await openWorkspace()];
    const draft = `/v1/automations/${await recordAutomation(workspaceId, { status: "draft" })}`;
    for (const path of [UNKNOWN, draft])
      expect(await api.patch(path, { status: "draft" })).toEqual(
        invalid("status", "unknown_value", { allowed: ["active", "paused"] }),
      );
    const unreadable = invalid("cursor", "unreadable");
    expect(await api.get(`${UNKNOWN}/runs?cursor=nonsense`)).toEqual(unreadable);
    expect(await other.api.patch(draft, { status: "active" })).toEqual(NO_AUTOMATION);
  });
});
