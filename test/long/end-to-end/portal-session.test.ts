import type { Page, Request } from "playwright-core";
import { beforeAll, describe, expect, test } from "vitest";
import { signPortalToken } from "../../../src/platform/portal-token.ts";
import { findBrowser, openPage, see } from "../../node/support/browser.ts";
import { PORTAL_SIGNING_KEYS, type Stage, setStage } from "../../node/support/portal.ts";
import { until } from "../../support/until.ts";

const executablePath = findBrowser();

describe.skipIf(!executablePath)("a session of the portal", { timeout: 300_000 }, () => {
  let stage: Stage;

  beforeAll(async () => {
    stage = await setStage(String(executablePath));
    return () => stage.stop();
  }, 300_000);

  /** Opens an empty page in English. */
  const openEmpty = () => openPage(stage.browser, stage.runtime.url, { locale: "en-GB" });
  const heading = (page: Page, name: string) => page.getByRole("heading", { level: 1, name });
  /** Follows the link to the use of keys. */
  const goToUsage = async (page: Page, name = "Usage") => {
    await page.getByRole("link", { name }).click();
    await heading(page, name).waitFor();
  };
  const placeOf = (page: Page) => new URL(page.url()).hash;
  /** The token of the session that the page keeps. */
  const keptIn = (page: Page) => page.evaluate<string>("Object.values(sessionStorage).join()");
  /** Follows a link in a page of the portal, as a click on it would. */
  const follow = (page: Page, link: string) => page.evaluate((to) => location.assign(to), link);

  test("is opened by a link, whose token leaves the address and is only sent to be exchanged", async () => {
    const link = await stage.makeLink(await stage.makeWorkspace());
    const token = new URL(link).hash.slice(1);
    const { page, faults, close } = await openEmpty();
    const requests: Request[] = [];
    const read = (request: Request) => requests.push(request);
    page.on("request", read);
    await page.goto(link);
    await see(page, "No subscriptions yet");
    expect(page.url()).toBe(new URL("/portal#/webhooks", stage.runtime.url).href);
    expect(await page.title()).toBe("Groupe Horizon – API and webhooks");
    expect(await page.evaluate("history.length")).toBe(2);
    await goToUsage(page);
    await page.reload();
    await heading(page, "Usage").waitFor();
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
    await close();
  });

  test("gives way to another workspace's only if the reader says so", async () => {
    const [lyon, paris] = [await stage.makeWorkspace("Lyon"), await stage.makeWorkspace("Paris")];
    const { page, faults, close } = await openEmpty();
    await page.goto(await stage.makeLink(lyon));
    await goToUsage(page);

    await follow(page, await stage.makeLink(paris));
    const question = page.getByRole("dialog", { name: "Open Paris?" });
    await see(question, "opens Paris. This tab shows Lyon.");
    await question.getByRole("button", { name: "Stay in Lyon" }).click();
    await question.waitFor({ state: "hidden" });
    expect([placeOf(page), await page.title()]).toEqual(["#/usage", "Lyon – API and webhooks"]);
    expect(await keptIn(page)).toContain(lyon);

    await follow(page, await stage.makeLink(paris));
    await question.getByRole("button", { name: "Open Paris" }).click();
    await see(page, "No subscriptions yet");
    await until(async () => (await page.title()) === "Paris – API and webhooks");
    expect(placeOf(page)).toBe("#/webhooks");
    expect(await keptIn(page)).toContain(paris);

    // The page is left and comes back with the first workspace's link.
    await page.goto("about:blank");
    await page.goto(await stage.makeLink(lyon));
    await page.getByRole("dialog", { name: "Open Lyon?" }).waitFor();
    expect(await page.title()).toBe("Paris – API and webhooks");
    expect(await faults()).toEqual([]);
    await close();
  });

  test("is renewed without a question by a link to the same workspace", async () => {
    const workspaceId = await stage.makeWorkspace();
    const { page, close } = await stage.open(workspaceId, { locale: "fr-FR" });
    await goToUsage(page, "Utilisation");
    const kept = await keptIn(page);
    const { PLATFORM } = stage.runtime.env;
    const { url } = await PLATFORM.createPortalLink({ workspaceId, validMinutes: 1440 });
    await follow(page, new URL(new URL(String(url)).hash, page.url()).href);
    await until(async () => (await keptIn(page)) !== kept);
    await heading(page, "Utilisation").waitFor();
    expect(await page.getByRole("dialog").count()).toBe(0);
    await close();
  });

  test("is unchanged by a fragment that is no token", async () => {
    const { page, faults, close } = await stage.open(await stage.makeWorkspace());
    await goToUsage(page);
    const kept = await keptIn(page);
    const link = await stage.makeLink(await stage.makeWorkspace());
    const [, token = ""] = link.split("#");
    for (const fragment of ["anything", "content", "wks_1", token.slice(0, -1)]) {
      await page.evaluate((to) => location.assign(`#${to}`), fragment);
      await until(() => placeOf(page) === "#/usage");
      await heading(page, "Usage").waitFor();
    }
    await page.reload();
    await heading(page, "Usage").waitFor();
    expect(await page.getByRole("dialog").count()).toBe(0);
    expect(await keptIn(page)).toBe(kept);
    expect(await faults()).toEqual([]);
    await close();
  });

  test("is missing on a page without a link", async () => {
    const { page, faults, close } = await openEmpty();
    await page.goto(new URL("/portal", stage.runtime.url).href);
    await heading(page, "Open the portal from its link").waitFor();
    expect(await faults()).toEqual([]);
    await close();
  });

  /** A link that can be opened until a time, for a session that ends at another. */
  const linkUntil = async (workspaceId: string, opensUntil: number, endsAt: number) => {
    const grant = { workspaceId, endsAt };
    const token = await signPortalToken(PORTAL_SIGNING_KEYS, "link", grant, opensUntil);
    return new URL(`/portal#${token}`, stage.runtime.url).href;
  };
  const inAnHour = () => Date.now() + 3_600_000;

  test("is not opened by a link that has run out: the page says so, and what to do", async () => {
    const workspaceId = await stage.makeWorkspace();
    for (const [locale, title, advice] of [
      ["en-GB", "This link has expired", "must be opened within two minutes. Ask for a new link"],
      ["fr-FR", "Ce lien a expiré", "dans les deux minutes. Demandez un nouveau lien"],
    ] as const) {
      const { page, close } = await openPage(stage.browser, stage.runtime.url, { locale });
      await page.goto(await linkUntil(workspaceId, Date.now() - 1_000, inAnHour()));
      await heading(page, title).waitFor();
      await see(page, advice);
      expect(placeOf(page)).toBe("#/webhooks");
      expect(await keptIn(page)).toBe("");
      await close();
    }
  });

  test("outlives its link, which may be followed again to no effect", async () => {
    const workspaceId = await stage.makeWorkspace("Lyon");
    const opensUntil = Date.now() + 15_000;
    const link = await linkUntil(workspaceId, opensUntil, inAnHour());
    const { page, close } = await openEmpty();
    await page.goto(link);
    await see(page, "No subscriptions yet");
    await until(() => Date.now() > opensUntil, 30_000);
    await page.reload();
    await see(page, "No subscriptions yet");

    await follow(page, link);
    const notice = page.getByRole("dialog", { name: "The link has expired" });
    await see(notice, "This tab still shows Lyon.");
    await notice.getByRole("button", { name: "Close" }).click();
    await notice.waitFor({ state: "hidden" });
    await goToUsage(page);
    await close();
  });

  test("ends on time", async () => {
    const workspaceId = await stage.makeWorkspace();
    const { page, close } = await openEmpty();
    const endsAt = Date.now() + 15_000;
    await page.goto(await linkUntil(workspaceId, endsAt, endsAt));
    await heading(page, "Subscriptions").waitFor();
    await until(() => Date.now() > endsAt, 30_000);
    await page.getByRole("link", { name: "Usage" }).click();
    await heading(page, "Your session has ended").waitFor();
    expect(await keptIn(page)).toBe("");

    // Nobody is asked to leave a session that has ended.
    await follow(page, await stage.makeLink(await stage.makeWorkspace()));
    await see(page, "No subscriptions yet");
    await close();
  });

  test("is opened once the server can be reached, and once the workspace has access", async () => {
    const workspaceId = await stage.makeWorkspace();
    const { PLATFORM } = stage.runtime.env;
    await PLATFORM.setWorkspaceAccess({ workspaceId, granted: false });
    const { page, close } = await openEmpty();
    await page.route("**/portal/api/session", (route) => route.abort());
    await page.goto(await stage.makeLink(workspaceId));
    await see(page, "The server cannot be reached.");
    await page.unrouteAll();
    await heading(page, "This workspace has no access").waitFor();
    expect(await keptIn(page)).toBe("");
    await PLATFORM.setWorkspaceAccess({ workspaceId, granted: true });
    await page.getByRole("button", { name: "Try again" }).click();
    await see(page, "No subscriptions yet");
    await close();
  });
});
