import { exports } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import {
  authorizedBy,
  deployedWith,
  freshAddress,
  inventedKey,
  openWorkspace,
  revokedKey,
  send,
} from "../../support/api.ts";
import { keepLog } from "../../support/log-lines.ts";

const lines = keepLog();

/** The request log lines since the last call. */
function requests(): Record<string, unknown>[] {
  const logged = lines.splice(0).map((line) => JSON.parse(line));
  return logged.filter(({ event }) => event === "request");
}

describe("the log line of a request", () => {
  test("has the key's id, whatever the result", async () => {
    const { workspaceId, keyId, api } = await openWorkspace({ requestsPerWindow: 3 });
    await api.get("/v1/leads");
    await api.get("/v1/leads?limit=0");
    await api.get("/v1/nowhere");
    await api.get("/v1/leads");
    // This one is refused from the isolate's memory.
    await api.get("/v1/leads");
    await exports.Platform.setWorkspaceAccess({ workspaceId, granted: false });
    await api.get("/v1/leads");
    const logged = requests();
    expect(logged.map(({ status }) => status)).toEqual([200, 400, 404, 429, 429, 403]);
    for (const line of logged) {
      expect(line).toMatchObject({ keyId, workspaceId });
      expect(line).not.toHaveProperty("address");
    }
  });

  test("has a pseudonym for the address of a failed authentication", async () => {
    const address = freshAddress();
    const revoked = await revokedKey();
    for (const key of [null, "nonsense", await inventedKey(), revoked])
      await authorizedBy(key && `Bearer ${key}`, address);
    for (let i = 0; i < 20; i++) await authorizedBy(null, address);
    await authorizedBy(null, freshAddress());
    const text = lines.join("\n");
    const logged = requests();
    expect(new Set(logged.map(({ status }) => status))).toEqual(new Set([401, 429]));
    for (const line of logged) {
      expect(line.address).toMatch(/^[0-9a-f]{16}$/);
      expect(line).not.toHaveProperty("keyId");
    }
    const names = logged.map((line) => line.address);
    expect(new Set(names.slice(0, -1)).size).toBe(1);
    expect(names.at(-1)).not.toBe(names[0]);
    expect(text).not.toContain(address);
  });

  test("has one pseudonym per IPv6 network, and a different one in another deployment", async () => {
    const from = (address: string, fetch?: ReturnType<typeof deployedWith>) =>
      send("/v1/leads", { headers: { "CF-Connecting-IP": address } }, fetch);
    await from("2001:db8:9:9::1");
    await from("2001:db8:9:9::2");
    const API_KEY_CHECKSUM_KEYS = `other:${btoa("o".repeat(32))}`;
    await from("2001:db8:9:9::1", deployedWith({ API_KEY_CHECKSUM_KEYS }));
    const [first, second, elsewhere] = requests().map((line) => line.address);
    expect(second).toBe(first);
    expect(elsewhere).not.toBe(first);
  });

  test("outside the API has neither", async () => {
    await send("/openapi.json");
    const [line] = requests();
    expect(line).not.toHaveProperty("key");
    expect(line).not.toHaveProperty("address");
  });
});
