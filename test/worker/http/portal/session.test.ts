import { env } from "cloudflare:workers";
import { describe, expect, test, vi } from "vitest";
import { PORTAL_TOKEN } from "../../../../src/contract/portal-token.ts";
import { deployedWith, errorOf, openWorkspace, Platform } from "../../../support/api.ts";
import { HOUR_MS, jumpTo } from "../../../support/deliveries.ts";
import { keepLog } from "../../../support/log-lines.ts";
import {
  exchange,
  linkToken,
  portalOf,
  portalRefusal,
  portalSuccess,
  sessionToken,
} from "../../../support/portal.ts";

keepLog();
const PLAIN = { actor: null, readOnly: false, returnUrl: null };
const UNAUTHORIZED = portalRefusal(401, "invalid_api_key");
/** The Worker in the test's own isolate, whose clock the test sets. */
const here = deployedWith({});

const waitSeconds = (seconds: number) => jumpTo(Date.now() + seconds * 1000);

/** When a session ends, as the page reads it from the token: Unix milliseconds. */
function endOf(token: string): number {
  const [, , , end = ""] = PORTAL_TOKEN.exec(token) ?? [];
  return Number.parseInt(end, 36) * 1000;
}

describe("a portal link", () => {
  test("is exchanged for a session of its workspace, which opens no other", async () => {
    const { workspaceId } = await openWorkspace();
    const linkFor = (validMinutes: number) =>
      Platform.createPortalLink({ workspaceId, validMinutes });
    expect(await errorOf(linkFor(1_441))).toContain("validMinutes");
    const { url } = await linkFor(1_440);
    expect(url).toMatch(/^https:\/\/api\.example\/portal#wks_[\w.-]+$/);
    const link = new URL(url).hash.slice(1);
    const answer = await exchange(link);
    const { token } = answer.body;
    expect(token).toMatch(/^wks_[\w.-]+$/);
    expect(endOf(token) - Date.now()).toBeGreaterThan(1_439 * 60_000);
    const workspace = { id: workspaceId, name: "Agence Lumière" };
    expect(answer).toEqual(portalSuccess(200, { token, workspace, ...PLAIN }));
    const shown = await portalOf(token).get("/workspace");
    expect(shown).toMatchObject({ status: 200, body: { workspaceId } });
    expect(await exchange(token)).toEqual(UNAUTHORIZED);
    await Platform.setWorkspaceAccess({ workspaceId, granted: false });
    expect(await exchange(link)).toEqual(portalRefusal(403, "workspace_access_denied"));
  });

  test("must be opened within two minutes, for sessions that last as long as requested, or an hour", async () => {
    const { workspaceId } = await openWorkspace();
    const [early, late] = [await linkToken(workspaceId, 10), await linkToken(workspaceId, 10)];
    const brief = await linkToken(workspaceId, 1);
    const first = await exchange(early, here);
    waitSeconds(60);
    expect(await exchange(brief, here)).toEqual(UNAUTHORIZED);
    waitSeconds(58);
    const { body } = await exchange(early, here);
    expect(endOf(body.token)).toBe(endOf(first.body.token));
    waitSeconds(2);
    for (const link of [early, late]) expect(await exchange(link, here)).toEqual(UNAUTHORIZED);
    const hour = await exchange(await linkToken(workspaceId), here);
    expect(endOf(hour.body.token)).toBe(Math.floor(Date.now() / 1000) * 1000 + HOUR_MS);
    const session = portalOf(body.token, here);
    waitSeconds(7 * 60);
    expect(await session.get("/webhooks")).toMatchObject({ status: 200 });
    waitSeconds(60);
    expect(await session.get("/webhooks")).toEqual(UNAUTHORIZED);
  });
});

test("A session's token is rejected if one character is changed", async () => {
  const { workspaceId } = await openWorkspace();
  const [old, added] = [env.PORTAL_SIGNING_KEYS, `new:${btoa("n".repeat(32))}`];
  const deployed = (PORTAL_SIGNING_KEYS: string) => deployedWith({ PORTAL_SIGNING_KEYS });
  const statusOf = async (token: string, ring: string) =>
    (await portalOf(token, deployed(ring)).get("/workspace")).status;
  const token = await sessionToken(workspaceId);
  const renewed = await exchange(await linkToken(workspaceId), deployed(`${added},${old}`));
  for (const [each, own, other] of [
    [token, old, added],
    [renewed.body.token, added, old],
  ] as const) {
    const rings = [own, `${added},${old}`, other].map((ring) => statusOf(each, ring));
    expect(await Promise.all(rings)).toEqual([200, 200, 401]);
  }
  for (const i of Array(token.length + 1).keys())
    for (const other of [token[i] === "a" ? "b" : "a", ""]) {
      const changed = token.slice(0, i) + other + token.slice(i + 1);
      if (changed !== token) expect(await statusOf(changed, old), changed).toBe(401);
    }
});

describe("a link's token", () => {
  test("that is forged costs no look-up, and none of its workspace's requests", async () => {
    const { workspaceId } = await openWorkspace();
    const link = await linkToken(workspaceId);
    const forged = link.slice(0, -4) + (link.endsWith("AAAA") ? "AAAB" : "AAAA");
    const untouchable = new Proxy({}, { get: (_, name) => expect.unreachable(String(name)) });
    const names = ["DB", "KEY_GATE", "ADDRESS_GATE", "PORTAL_REQUESTS"];
    const fetch = deployedWith(Object.fromEntries(names.map((name) => [name, untouchable])));
    for (let i = 0; i < 30; i++) expect(await exchange(forged, fetch)).toEqual(UNAUTHORIZED);
  });

  test("counts against its workspace's requests when it is exchanged, unless it has ended", async () => {
    const { workspaceId } = await openWorkspace();
    const limit = vi.fn(async ({ key }: { key: string }) => ({ success: key !== workspaceId }));
    const fetch = deployedWith({ PORTAL_REQUESTS: { limit } });
    const token = await linkToken(workspaceId);
    const answer = await exchange(token, fetch);
    expect(answer).toMatchObject({ status: 429, headers: { "retry-after": "60" } });
    await Platform.endPortalSessions({ workspaceId });
    expect(await exchange(token, fetch)).toEqual(UNAUTHORIZED);
  });

  test("and its sessions have a limit of their own, which is used up although they have ended", async () => {
    const { workspaceId } = await openWorkspace();
    const counts = new Map<string, number>();
    const limit = async ({ key }: { key: string }) => {
      counts.set(key, (counts.get(key) ?? 0) + 1);
      return { success: (counts.get(key) ?? 0) <= 3 };
    };
    const fetch = deployedWith({ PORTAL_REQUESTS: { limit } });
    const ended = portalOf(await sessionToken(workspaceId), fetch);
    await Platform.endPortalSessions({ workspaceId });
    const statuses: number[] = [];
    for (let i = 0; i < 5; i++) statuses.push((await ended.get("/webhooks")).status);
    expect(statuses).toEqual([401, 401, 401, 429, 429]);
    expect((await exchange(await linkToken(workspaceId), fetch)).status).toBe(200);
  });
});
