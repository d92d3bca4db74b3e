import type { Page, Request } from "playwright-core";
import { afterEach, expect, test } from "vitest";
import { PORTAL_SIGNING_KEYS } from "../../../scripts/shared/runtime.ts";
import { signPortalToken } from "../../../src/platform/portal-token.ts";
import { see } from "../../node/support/browser.ts";
import { heading, setStage } from "../../node/support/portal.ts";
import { until } from "../../support/until.ts";

const stage = await setStage();
const { runtime, makeLink, makeWorkspace } = stage;
const { PLATFORM } = runtime.env;

afterEach(() => stage.returnPage());

/** Opens the portal of a workspace through a link. */
async function open(workspaceId: string) {
  const visit = await stage.takePage();
  await stage.enter(visit, workspaceId);
  return visit;
}
/** Follows the link to the use of keys. */
async function goToUsage(page: Page, name = "API keys"): Promise<void> {
  await page.getByRole("link", { name }).click();
  await heading(page, name).waitFor();
}
const placeOf = (page: Page) => new URL(page.url()).hash;
/** The token of the session that the page keeps. */
const keptIn = (page: Page) => page.evaluate<string>("Object.values(sessionStorage).join()");
/** Follows a link in a page of the portal, as a click on it would. */
const follow = (page: Page, link: string) => page.evaluate((to) => location.assign(to), link);
/** A link that was to be opened until a second ago. */
async function makeExpiredLink(workspaceId: string): Promise<string> {
  const now = Date.now();
  const options = { actor: null, readOnly: false, returnUrl: null };
  const grant = { workspaceId, issuedAt: now, endsAt: now + 3_600_000, ...options };
  const token = await signPortalToken(PORTAL_SIGNING_KEYS, "link", grant, now - 1_000);
  return new URL(`/portal#${token}`, runtime.url).href;
}

test("a session is opened by a link, whose token leaves the address and is only sent to be exchanged", async () => {
  const link = await makeLink(await makeWorkspace());
  const token = new URL(link).hash.slice(1);
  const { page, faults } = await stage.takeEmptyPage();
  const length = await page.evaluate<number>("history.length");
  const requests: Request[] = [];
  const read = (request: Request) => requests.push(request);
  page.on("request", read);
  await page.goto(link);
  await see(page, "No webhooks yet");
  expect(page.url()).toBe(new URL("/portal#/webhooks", runtime.url).href);
  expect(await page.title()).toBe("Webhooks – Groupe Horizon – API and webhooks");
  expect(await page.evaluate("history.length")).toBe(length + 1);
  await goToUsage(page);
  await page.reload();
  await heading(page, "API keys").waitFor();
  expect(await page.evaluate("JSON.stringify([localStorage, document.cookie])")).toBe('[{},""]');
  const kept = await keptIn(page);
  expect(kept).toMatch(/^wks_[^,]+$/);
  expect(kept).not.toBe(token);
  page.off("request", read);
  expect(requests.length).toBeGreaterThan(5);
  const calls: [path: string, authorization: string][] = [];
  for (const request of requests) {
    const { authorization = "", ...others } = await request.allHeaders();
    const shown = request.url() + JSON.stringify(others);
    for (const secret of [token, kept]) expect(shown).not.toContain(secret);
    expect(shown).not.toMatch(/"referer":"[^"]|cookie/);
    const { pathname } = new URL(request.url());
    if (pathname.startsWith("/portal/api/")) calls.push([pathname, authorization]);
  }
  for (const secret of [token, kept]) expect(await page.content()).not.toContain(secret);
  expect(calls[0]).toEqual(["/portal/api/session", `Bearer ${token}`]);
  expect(new Set(calls.slice(1).map(([, sent]) => sent))).toEqual(new Set([`Bearer ${kept}`]));
  expect(await faults()).toEqual([]);
});

test("a session gives way to another workspace's only if the reader says so", async () => {
  const [lyon, paris] = [await makeWorkspace("Lyon"), await makeWorkspace("Paris")];
  const { page, faults } = await stage.takeEmptyPage();
  await page.goto(await makeLink(lyon));
  await goToUsage(page);

  await follow(page, await makeLink(paris));
  const question = page.getByRole("dialog", { name: "Open Paris?" });
  await see(question, "opens Paris. This tab shows Lyon.");
  await question.getByRole("button", { name: "Stay in Lyon" }).click();
  await question.waitFor({ state: "hidden" });
  expect([placeOf(page), await page.title()]).toEqual([
    "#/usage",
    "API keys – Lyon – API and webhooks",
  ]);
  expect(await keptIn(page)).toContain(lyon);

  await follow(page, await makeLink(paris));
  await question.getByRole("button", { name: "Open Paris" }).click();
  await see(page, "No webhooks yet");
  await until(async () => (await page.title()) === "Webhooks – Paris – API and webhooks");
  expect(placeOf(page)).toBe("#/webhooks");
  expect(await keptIn(page)).toContain(paris);

  // The page is left and comes back with the first workspace's link.
  await page.goto("about:blank");
  await page.goto(await makeLink(lyon));
  await page.getByRole("dialog", { name: "Open Lyon?" }).waitFor();
  expect(await page.title()).toBe("Webhooks – Paris – API and webhooks");
  expect(await faults()).toEqual([]);
});

test("A session is renewed by a link to its workspace, and by no other fragment", async () => {
  const { page, faults } = await stage.takeEmptyPage();
  await page.goto(new URL("/portal", runtime.url).href);
  await heading(page, "Open the portal from the app").waitFor();

  const workspaceId = await makeWorkspace();
  await follow(page, await makeLink(workspaceId));
  await goToUsage(page);
  const kept = await keptIn(page);
  const [, token = ""] = (await makeLink(await makeWorkspace())).split("#");
  for (const fragment of ["content", token.slice(0, -1)]) {
    await page.evaluate((to) => location.assign(`#${to}`), fragment);
    await until(() => placeOf(page) === "#/usage");
    await heading(page, "API keys").waitFor();
  }
  await page.reload();
  await heading(page, "API keys").waitFor();
  expect(await keptIn(page)).toBe(kept);

  const { url } = await PLATFORM.createPortalLink({ workspaceId, validMinutes: 1440 });
  await follow(page, new URL(new URL(String(url)).hash, page.url()).href);
  await until(async () => (await keptIn(page)) !== kept);
  await heading(page, "API keys").waitFor();
  expect(await page.getByRole("dialog").count()).toBe(0);
  expect(await faults()).toEqual([]);
});

test("a link that has run out opens no session, and the page says so", async () => {
  const { page } = await stage.takeEmptyPage();
  await page.goto(await makeExpiredLink(await makeWorkspace()));
  await heading(page, "This link has expired").waitFor();
  await see(page, "can be opened for two minutes. Get a new one");
  expect([placeOf(page), await keptIn(page)]).toEqual(["#/webhooks", ""]);
});

test("An expired link leaves a session open", async () => {
  const workspaceId = await makeWorkspace("Lyon");
  const { page } = await open(workspaceId);
  await follow(page, await makeExpiredLink(workspaceId));
  const notice = page.getByRole("dialog", { name: "The link has expired" });
  await see(notice, "This tab still shows Lyon.");
  await notice.getByRole("button", { name: "Close" }).click();
  await notice.waitFor({ state: "hidden" });
  await goToUsage(page);
  await see(page, "600 requests per minute");
});

test("a session opens only while the workspace has access", async () => {
  const workspaceId = await makeWorkspace();
  const grant = (granted: boolean) => PLATFORM.setWorkspaceAccess({ workspaceId, granted });
  await grant(false);
  const { page } = await stage.takeEmptyPage();
  const denied = heading(page, "This workspace has no access");
  const tryAgain = page.getByRole("button", { name: "Try again" });
  await page.route("**/portal/api/session", (route) => route.abort());
  await page.goto(await makeLink(workspaceId));
  await see(page, "The server cannot be reached.");
  await page.unrouteAll();
  await denied.waitFor();
  expect(await keptIn(page)).toBe("");
  await grant(true);
  await tryAgain.click();
  await see(page, "No webhooks yet");

  await grant(false);
  await page.getByRole("link", { name: "API keys" }).click();
  await denied.waitFor();
  await tryAgain.click();
  await denied.waitFor();
  // A session that was open then has ended for good.
  await grant(true);
  await tryAgain.click();
  await heading(page, "Your session has ended").waitFor();
});

test("the page recovers from a network failure, too many requests and what does not exist", async () => {
  const { page } = await open(await makeWorkspace());
  await see(page, "No webhooks yet");
  await page.context().setOffline(true);
  await page.getByRole("link", { name: "API keys" }).click();
  await see(page, "The server cannot be reached.");
  await page.context().setOffline(false);
  await see(page, "600 requests per minute");

  const limited = { code: "rate_limited", message: "…", details: { retry_after_seconds: 2 } };
  await page.route("**/portal/api/webhooks", (route) =>
    route.fulfill({ status: 429, headers: { "Retry-After": "2" }, json: { error: limited } }),
  );
  await page.getByRole("link", { name: "Webhooks" }).click();
  await see(page, "The page tries again in 2 seconds.");
  await page.unrouteAll();
  // The list from before stands below it.
  await page.getByText("The page tries again").waitFor({ state: "hidden" });
  await see(page, "No webhooks yet");

  for (const [place, told] of [
    // The link of an e-mail may be about a webhook of another workspace.
    [
      "webhooks/whk_none",
      "It belongs to another workspace, or it was deleted. This tab shows Groupe",
    ],
    ["webhooks/whk_none/evt_none", "Page not found"],
    ["nowhere", "Page not found"],
  ] as const) {
    await page.evaluate(`location.hash = "#/${place}"`);
    await see(page, told);
    await page.getByRole("link", { name: "See all webhooks" }).click();
    await see(page, "No webhooks yet");
  }
});

test("a new tab of the same browser has the session, and its place", async () => {
  const workspaceId = await makeWorkspace();
  await stage.subscribe(workspaceId);
  const { page, faults } = await open(workspaceId);
  const name = /\/in$/;
  const opened = page.context().waitForEvent("page");
  await page.getByRole("link", { name }).click({ modifiers: ["ControlOrMeta"] });
  const tab = await opened;
  await tab.getByRole("heading", { level: 1, name }).waitFor();
  expect(await keptIn(tab)).toBe(await keptIn(page));
  expect(await tab.evaluate("JSON.stringify(localStorage)")).toBe("{}");
  expect(await faults()).toEqual([]);
});

test("a link in an e-mail ends at its webhook after signing in, in its own tab and in the app's", async () => {
  const workspaceId = await makeWorkspace();
  const id = await stage.subscribe(workspaceId);
  const { page } = await stage.takeEmptyPage();
  await page.goto(new URL(`/portal#/webhooks/${id}`, runtime.url).href);
  await heading(page, "Open the portal from the app").waitFor();
  const app = await page.context().newPage();
  await app.goto(await makeLink(workspaceId));
  for (const tab of [app, page])
    await tab.getByRole("heading", { level: 1, name: /\/in$/ }).waitFor();
});
