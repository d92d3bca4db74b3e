import { exports } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import {
  authorizedBy,
  EMPTY_PAGE,
  openApi,
  openWorkspace,
  rateLimitOf,
  refusal,
  success,
  unknownKey,
  withoutRateLimit,
} from "../../support/api.ts";

const { Platform } = exports;
const REFUSED = refusal(401, "invalid_api_key");

async function untilAfter(time: number): Promise<void> {
  while (Date.now() <= time) await new Promise((resolve) => setTimeout(resolve, 5));
}

/** When the key expires, Unix milliseconds. */
async function endOf(workspaceId: string, keyId: string): Promise<number> {
  const { items } = await Platform.listApiKeys({ workspaceId });
  return Date.parse(items.find((item) => item.keyId === keyId)?.expiresAt ?? "");
}

describe("a key that was rolled", () => {
  test("without an overlap is refused once the call has returned, even where it was just in use, or used up", async () => {
    const { keyId, api } = await openWorkspace({ requestsPerWindow: 15 });
    expect(await api.get("/v1/leads")).toEqual(success(200, EMPTY_PAGE));
    const underWay = Array.from({ length: 20 }, () => api.get("/v1/leads"));
    const { apiKey } = await Platform.rollApiKey({ keyId, overlapSeconds: 0 });
    const after = await Promise.all(Array.from({ length: 10 }, () => api.get("/v1/leads")));
    for (const answer of after) expect(answer).toEqual(REFUSED);
    for (const { status } of await Promise.all(underWay)) expect([200, 401, 429]).toContain(status);
    expect(await openApi(apiKey).get("/v1/leads")).toEqual(success(200, EMPTY_PAGE));
  });

  test.each(["quota", "access"])(
    "with no %s left is refused as unknown once it has expired, whatever the isolate remembers",
    async (what) => {
      const { workspaceId, keyId, api } = await openWorkspace({ requestsPerWindow: 1 });
      expect(await api.get("/v1/leads")).toEqual(success(200, EMPTY_PAGE));
      const { apiKey } = await Platform.rollApiKey({ keyId, overlapSeconds: 3 });
      if (what === "access") await Platform.setWorkspaceAccess({ workspaceId, granted: false });
      const end = await endOf(workspaceId, keyId);
      // So late that what the isolate remembers would outlive the key.
      await untilAfter(end - 1_000);
      const { status } = await api.get("/v1/leads");
      if (Date.now() < end) expect(status).toBe(what === "quota" ? 429 : 403);
      await untilAfter(end);
      const answer = await api.get("/v1/leads");
      expect(answer).toEqual(REFUSED);
      const unknown = await authorizedBy(`Bearer ${await unknownKey()}`);
      expect(withoutRateLimit(answer)).toEqual(withoutRateLimit(unknown));
      expect(rateLimitOf(answer)).toEqual(rateLimitOf(unknown));
      const rolled = await openApi(apiKey).get("/v1/leads");
      expect(rolled.status).toBe(what === "quota" ? 200 : 403);
    },
  );
});
