import { exports } from "cloudflare:workers";
import { afterEach, describe, expect, test, vi } from "vitest";
import { PORTAL_TOKEN } from "../../../../src/contract/portal-token.ts";
import { deployedWith, errorOf, openWorkspace, send } from "../../../support/api.ts";
import { countHops } from "../../../support/hops.ts";
import { keepLog } from "../../../support/log-lines.ts";
import {
  exchange,
  linkToken,
  portalOf,
  portalRefusal,
  portalSuccess,
  sessionToken,
} from "../../../support/portal.ts";

const { Platform } = exports;
const _lines = keepLog();
const UNAUTHORIZED = portalRefusal(401, "invalid_api_key");
const MINUTE_MS = 60_000;
/** The Worker in the test's own isolate, whose clock the test sets. */
const here = deployedWith({});

afterEach(() => {
  vi.useRealTimers();
});

/** Sets the clock to so many seconds from now. */
function waitSeconds(seconds: number): void {
  vi.useFakeTimers({ toFake: ["Date"], now: Date.now() + seconds * 1000 });
}

/** When a session ends, as the page reads it from the token: Unix milliseconds. */
function endOf(token: string): number {
  const [, , , end = ""] = PORTAL_TOKEN.exec(token) ?? [];
  return Number.parseInt(end, 36) * 1000;
}

describe("a portal link", () => {
  test("is exchanged for a session of its workspace", async () => {
    const { workspaceId } = await openWorkspace();
    const link = await linkToken(workspaceId);
    const answer = await exchange(link);
    expect(answer).toEqual(
      portalSuccess(200, {
        token: expect.stringMatching(/^wks_[\w.-]+$/),
        workspace: { id: workspaceId, name: "Agence Lumière" },
      }),
    );
    expect(answer.body.token).not.toBe(link);
    const shown = await portalOf(answer.body.token).get("/workspace");
    expect(shown).toMatchObject({ status: 200, body: { workspaceId } });
  });

  test("must be opened within two minutes, and its session lasts as long as was asked for", async () => {
    const { workspaceId } = await openWorkspace();
    const [early, late] = [await linkToken(workspaceId, 10), await linkToken(workspaceId, 10)];
    waitSeconds(118);
    const { body } = await exchange(early, here);
    waitSeconds(2);
    expect(await exchange(late, here)).toEqual(UNAUTHORIZED);
    expect(await exchange(early, here)).toEqual(UNAUTHORIZED);
    const session = portalOf(body.token, here);
    waitSeconds(7 * 60);
    expect(await session.get("/webhooks")).toMatchObject({ status: 200 });
    waitSeconds(60);
    expect(await session.get("/webhooks")).toEqual(UNAUTHORIZED);
  });

  test("can be exchanged again in its two minutes, but no session lasts longer for it", async () => {
    const { workspaceId } = await openWorkspace();
    const link = await linkToken(workspaceId);
    const first = await exchange(link, here);
    waitSeconds(100);
    const second = await exchange(link, here);
    expect(endOf(second.body.token)).toBe(endOf(first.body.token));
  });

  test("opens no session of a workspace that was erased or has no access, until it has access again", async () => {
    const { workspaceId } = await openWorkspace();
    const link = await linkToken(workspaceId);
    await Platform.setWorkspaceAccess({ workspaceId, granted: false });
    expect(await exchange(link)).toEqual(portalRefusal(403, "workspace_access_denied"));
    await Platform.setWorkspaceAccess({ workspaceId, granted: true });
    expect(await exchange(link)).toMatchObject({ status: 200 });
    while (!(await Platform.eraseWorkspace({ workspaceId })).done);
    expect(await exchange(link)).toEqual(UNAUTHORIZED);
  });

  test("takes one round trip to be exchanged", async () => {
    const link = await linkToken((await openWorkspace()).workspaceId);
    const { overrides, taken } = countHops();
    expect(await exchange(link, deployedWith(overrides))).toMatchObject({ status: 200 });
    expect(taken()).toBe(1);
  });

  test("is exchanged with POST only", async () => {
    const link = portalOf(await linkToken((await openWorkspace()).workspaceId));
    for (const method of ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
      expect((await link.send("/session", { method })).status, method).toBe(404);
  });
});

describe("a token of the portal", () => {
  test("of a link is not a session's: it does nothing but open one", async () => {
    const { workspaceId } = await openWorkspace();
    const link = portalOf(await linkToken(workspaceId));
    const body = { url: "https://hooks.example.com/", events: ["lead.created"] };
    expect(await link.post("/webhooks", body)).toEqual(UNAUTHORIZED);
    for (const path of ["/workspace", "/keys", "/webhooks", "/nothing", "/session/"])
      expect(await link.get(path)).toEqual(UNAUTHORIZED);
    expect((await Platform.listWebhooks({ workspaceId })).items).toEqual([]);
  });

  test("of a session is not a link's: it cannot be exchanged for another", async () => {
    const session = await sessionToken((await openWorkspace()).workspaceId);
    expect(await exchange(session)).toEqual(UNAUTHORIZED);
  });

  test("that is forged costs no look-up, and none of its workspace's requests", async () => {
    const { workspaceId } = await openWorkspace();
    const link = await linkToken(workspaceId);
    const forged = link.slice(0, -4) + (link.endsWith("AAAA") ? "AAAB" : "AAAA");
    const untouchable = new Proxy({}, { get: (_, name) => expect.unreachable(String(name)) });
    const names = ["DB", "KEY_GATE", "ADDRESS_GATE", "PORTAL_REQUESTS"];
    const fetch = deployedWith(Object.fromEntries(names.map((name) => [name, untouchable])));
    for (let i = 0; i < 30; i++) expect(await exchange(forged, fetch)).toEqual(UNAUTHORIZED);
  });

  test("counts against its workspace's requests when it is exchanged", async () => {
    const { workspaceId } = await openWorkspace();
    const link = await linkToken(workspaceId);
    const keys: string[] = [];
    const limit = async ({ key }: RateLimitOptions) => {
      keys.push(key);
      return { success: false };
    };
    const answer = await exchange(link, deployedWith({ PORTAL_REQUESTS: { limit } as RateLimit }));
    expect(answer).toMatchObject({ status: 429, headers: { "retry-after": "60" } });
    expect(keys).toEqual([workspaceId]);
  });

  test("is of no use to a page of another origin: no answer lets one read it", async () => {
    const { workspaceId } = await openWorkspace();
    const [link, session] = [await linkToken(workspaceId), await sessionToken(workspaceId)];
    const Origin = "https://evil.example";
    const preflight = { Origin, "Access-Control-Request-Method": "POST" };
    const asked = { "Access-Control-Request-Headers": "authorization", ...preflight };
    const answers = [
      await send("/portal/api/session", { method: "OPTIONS", headers: asked }),
      await portalOf(link).send("/session", { method: "POST", headers: { Origin } }),
      await portalOf(session).send("/workspace", { headers: { Origin } }),
    ];
    expect(answers.map(({ status }) => status)).toEqual([401, 200, 200]);
    for (const { headers } of answers)
      expect(Object.keys(headers).filter((name) => name.startsWith("access-control-"))).toEqual([]);
  });
});

describe("createPortalLink", () => {
  test("makes a link whose session lasts for the given time", async () => {
    const { workspaceId } = await openWorkspace();
    const { url } = await Platform.createPortalLink({ workspaceId, validMinutes: 1440 });
    expect(url).toMatch(/^https:\/\/api\.example\/portal#wks_[\w.-]+$/);
    const { body } = await exchange(new URL(url).hash.slice(1));
    expect(endOf(body.token) - Date.now()).toBeGreaterThan(1_439 * MINUTE_MS);
  });

  test.each([
    [{ workspaceId: "wks_none" }, "workspaceId: no such workspace"],
    [{ workspaceId: "wks_none", validMinutes: 0 }, "validMinutes"],
    [{ workspaceId: "wks_none", validMinutes: 1441 }, "validMinutes"],
    [{ workspaceId: "wks_none", validMinutes: 1.5 }, "validMinutes"],
  ])("rejects %o", async (input, message) => {
    expect(await errorOf(Platform.createPortalLink(input))).toContain(message);
  });
});
