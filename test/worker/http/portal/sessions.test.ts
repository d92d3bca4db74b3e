import { env } from "cloudflare:workers";
import { expect, test } from "vitest";
import { RETURN_URL_MAX_LENGTH } from "../../../../src/contract/limits.ts";
import { signPortalToken } from "../../../../src/platform/portal-token.ts";
import { errorOf, openWorkspace, Platform } from "../../../support/api.ts";
import { HOUR_MS, jumpTo } from "../../../support/deliveries.ts";
import { useThreeDatabases } from "../../../support/placement.ts";
import {
  exchange,
  grantOf,
  linkToken,
  openOwed,
  portalOf,
  sessionToken,
} from "../../../support/portal.ts";

useThreeDatabases();

/** The statuses that a session and an unopened link of a workspace get. */
async function statusesOf(session: string, link: string): Promise<number[]> {
  const portal = portalOf(session);
  return [(await portal.get("/webhooks")).status, (await exchange(link)).status];
}

/** A session, a link that was not opened, and ways to end them. */
async function openBoth() {
  const { workspaceId } = await openWorkspace();
  const [session, link] = [await sessionToken(workspaceId), await linkToken(workspaceId)];
  return { workspaceId, session, link };
}

test("Sessions and links of before stay invalid when access is granted again", async () => {
  const { workspaceId, session, link } = await openBoth();
  expect(await statusesOf(session, link)).toEqual([200, 200]);
  await Platform.setWorkspaceAccess({ workspaceId, granted: false });
  expect(await statusesOf(session, link)).toEqual([403, 403]);
  await Platform.setWorkspaceAccess({ workspaceId, granted: true });
  expect(await statusesOf(session, link)).toEqual([401, 401]);
});

test("endPortalSessions ends the sessions and links of one workspace", async () => {
  const [own, other] = [await openBoth(), await openBoth()];
  for (let round = 0; round < 3; round++) {
    const { workspaceId } = own;
    const [session, link] = [await sessionToken(workspaceId), await linkToken(workspaceId)];
    expect(await statusesOf(session, link)).toEqual([200, 200]);
    expect(await Platform.endPortalSessions({ workspaceId })).toEqual({});
    expect(await statusesOf(session, link)).toEqual([401, 401]);
  }
  expect(await statusesOf(other.session, other.link)).toEqual([200, 200]);
});

test("Sessions end even if other ones were ended in the same millisecond", async () => {
  const { workspaceId } = await openWorkspace();
  jumpTo(Date.now());
  await Platform.endPortalSessions({ workspaceId });
  const [session, link] = [await sessionToken(workspaceId), await linkToken(workspaceId)];
  await Platform.endPortalSessions({ workspaceId });
  expect(await statusesOf(session, link)).toEqual([401, 401]);
});

test("A session ends even if the clock that dated its link was nine seconds ahead", async () => {
  const { workspaceId } = await openWorkspace();
  const now = Date.now();
  const grant = { ...grantOf(workspaceId, now + HOUR_MS), issuedAt: now + 9_000 };
  const portal = portalOf(await signPortalToken(env.PORTAL_SIGNING_KEYS, "session", grant));
  expect((await portal.get("/webhooks")).status).toBe(200);
  await Platform.endPortalSessions({ workspaceId });
  expect((await portal.get("/webhooks")).status).toBe(401);
});

test("A session has the actor, the address to return to and the mode of its link", async () => {
  const { workspaceId } = await openWorkspace();
  // The longest ones, of characters that take the most bytes.
  const returnUrl = "https://app.example.com/".padEnd(RETURN_URL_MAX_LENGTH, "漢");
  const named = { actor: "漢".repeat(100), readOnly: true, returnUrl };
  const { url } = await Platform.createPortalLink({ workspaceId, ...named });
  const { body } = await exchange(new URL(url).hash.slice(1));
  expect(body).toMatchObject(named);
  const { body: plain } = await exchange(await linkToken(workspaceId));
  expect(plain).toMatchObject({ actor: null, readOnly: false, returnUrl: null });
});

test.each([
  "http://app.example.com/",
  "javascript:alert(1)",
  "/settings",
  "https://",
  // In a link, each takes six times as much.
  "https://app.example.com/\u0001",
])("createPortalLink refuses to lead back to %j", async (returnUrl) => {
  const { workspaceId } = await openWorkspace();
  const refused = await errorOf(Platform.createPortalLink({ workspaceId, returnUrl }));
  expect(refused).toMatch(/^createPortalLink: returnUrl: /);
});

test("A read-only session shows everything and changes nothing", async () => {
  const { workspaceId, webhookId, path, eventIds } = await openOwed();
  const { url } = await Platform.createPortalLink({ workspaceId, readOnly: true });
  const { body } = await exchange(new URL(url).hash.slice(1));
  const portal = portalOf(body.token);
  const delivery = `${path}/deliveries/${eventIds[0]}`;
  for (const shown of ["/workspace", "/keys", "/webhooks", path, `${path}/deliveries`, delivery])
    expect([shown, (await portal.get(shown)).status]).toEqual([shown, 200]);
  expect((await portal.send("/webhooks", { method: "HEAD" })).status).toBe(200);
  const before = await Platform.readWebhook({ webhookId });
  const changes: [path: string, body: object][] = [
    ["/webhooks", { url: "https://hooks.example.com/", events: ["lead.created"] }],
    [`${path}/update`, { description: "x" }],
    [`${path}/disable`, {}],
    [`${path}/enable`, {}],
    [`${path}/secret`, {}],
    [`${path}/overlap`, {}],
    [`${path}/test`, { type: "lead.created" }],
    [`${path}/redeliver`, { eventIds }],
  ];
  const refused = [
    ...(await Promise.all(changes.map(([to, change]) => portal.post(to, change)))),
    await portal.delete(path),
  ];
  for (const { status, body: answer } of refused)
    expect([status, answer]).toMatchObject([
      403,
      { error: { code: "workspace_access_denied", details: { reason: "read_only_session" } } },
    ]);
  expect(await Platform.readWebhook({ webhookId })).toEqual(before);
  expect((await Platform.listWebhooks({ workspaceId })).items).toHaveLength(1);
});
