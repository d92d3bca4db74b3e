import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import type { Page } from "playwright-core";
import { beforeAll, describe, expect, test } from "vitest";
import { ROOT } from "../../../scripts/shared/checkout.ts";
import { signPortalToken } from "../../../src/gate/portal-token.ts";
import {
  findBrowser,
  openPage,
  PHONE_WIDTH,
  type Visit,
  violationsIn,
  widthOf,
} from "../../node/support/browser.ts";
import { PORTAL_SIGNING_KEYS, type Stage, setStage } from "../../node/support/portal.ts";
import { until } from "../../support/until.ts";

const executablePath = findBrowser();

test("the page is smaller than 60 KB, compressed", () => {
  const folder = join(ROOT, "dist/assets/portal");
  const files = readdirSync(folder);
  expect(files.map((file) => file.split(".").at(-1)).toSorted()).toEqual([
    ...["css", "html", "js", "svg"],
  ]);
  const sizes = files.map((file) => gzipSync(readFileSync(join(folder, file))).length);
  expect(sizes.reduce((sum, size) => sum + size)).toBeLessThan(60_000);
});

describe.skipIf(!executablePath)("access to the portal", { timeout: 300_000 }, () => {
  let stage: Stage;

  beforeAll(async () => {
    stage = await setStage(String(executablePath));
    return () => stage.stop();
  }, 300_000);

  /** Opens an empty page in English. */
  const openEmpty = () => openPage(stage.browser, stage.runtime.url, { locale: "en-GB" });
  const heading = (page: Page, name: string) => page.getByRole("heading", { level: 1, name });

  test("is granted by a link, whose token leaves the address and is only sent to be exchanged", async () => {
    const link = await stage.makeLink(await stage.makeWorkspace());
    const token = new URL(link).hash.slice(1);
    const { page, faults, close } = await openEmpty();
    const requests: string[] = [];
    const sent: [string, string | undefined][] = [];
    page.on("request", async (request) => {
      const { authorization, ...headers } = await request.allHeaders();
      requests.push(`${request.url()} ${JSON.stringify(headers)}`);
      const { pathname } = new URL(request.url());
      if (pathname.startsWith("/portal/api/")) sent.push([pathname, authorization]);
    });
    await page.goto(link);
    await page.getByText("No subscription yet").waitFor();
    expect(page.url()).toBe(new URL("/portal#/webhooks", stage.runtime.url).href);
    expect(await page.title()).toBe("Groupe Horizon – API and webhooks");
    expect(await page.evaluate("history.length")).toBe(2);
    await page.getByRole("link", { name: "Usage" }).click();
    await heading(page, "Usage").waitFor();
    await page.reload();
    await heading(page, "Usage").waitFor();
    expect(await page.evaluate("JSON.stringify([localStorage, document.cookie])")).toBe('[{},""]');
    const kept = await page.evaluate<string[]>("Object.values(sessionStorage)");
    expect(kept).toEqual([expect.stringMatching(/^wks_/)]);
    expect(kept).not.toContain(token);
    for (const secret of [token, String(kept[0])]) {
      expect(await page.content()).not.toContain(secret);
      expect(requests.filter((request) => request.includes(secret))).toEqual([]);
    }
    expect(requests.length).toBeGreaterThan(5);
    expect(sent.filter(([, authorization]) => authorization === `Bearer ${token}`)).toEqual([
      ["/portal/api/session", `Bearer ${token}`],
    ]);
    expect(new Set(sent.slice(1).map(([, authorization]) => authorization))).toEqual(
      new Set([`Bearer ${kept[0]}`]),
    );
    expect(requests.filter((request) => /"referer":"[^"]|cookie/.test(request))).toEqual([]);
    expect(await faults()).toEqual([]);
    await close();
  });

  const placeOf = (page: Page) => new URL(page.url()).hash;
  /** The token of the session that the page keeps. */
  const keptIn = (page: Page) => page.evaluate<string>("Object.values(sessionStorage).join()");
  /** Follows a link in a page of the portal, as a click on it would. */
  const follow = (page: Page, link: string) => page.evaluate((to) => location.assign(to), link);

  test("moves to another workspace's link only if the reader says so", async () => {
    const [lyon, paris] = [await stage.makeWorkspace("Lyon"), await stage.makeWorkspace("Paris")];
    const { page, faults, close } = await openEmpty();
    await page.goto(await stage.makeLink(lyon));
    await page.getByRole("link", { name: "Usage" }).click();
    await heading(page, "Usage").waitFor();

    await follow(page, await stage.makeLink(paris));
    const question = page.getByRole("dialog", { name: "Open Paris?" });
    await question.getByText("opens Paris. This tab shows Lyon.").waitFor();
    await question.getByRole("button", { name: "Stay in Lyon" }).click();
    await question.waitFor({ state: "hidden" });
    expect([placeOf(page), await page.title()]).toEqual(["#/usage", "Lyon – API and webhooks"]);
    expect(await keptIn(page)).toContain(lyon);

    await follow(page, await stage.makeLink(paris));
    await question.getByRole("button", { name: "Open Paris" }).click();
    await page.getByText("No subscription yet").waitFor();
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
    await page.getByRole("link", { name: "Utilisation" }).click();
    await heading(page, "Utilisation").waitFor();
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
    await page.getByRole("link", { name: "Usage" }).click();
    await heading(page, "Usage").waitFor();
    const kept = await keptIn(page);
    const link = await stage.makeLink(await stage.makeWorkspace());
    for (const fragment of [
      "anything",
      "content",
      "wks_1",
      link.slice(link.indexOf("#") + 1, -1),
    ]) {
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

  test("is requested by a page without a link", async () => {
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

  test("is refused to a link that has run out, which says what to do", async () => {
    const workspaceId = await stage.makeWorkspace();
    for (const [locale, title, advice] of [
      ["en-GB", "This link has expired", "must be opened within two minutes. Ask for a new link"],
      ["fr-FR", "Ce lien a expiré", "dans les deux minutes. Demandez un nouveau lien"],
    ] as const) {
      const { page, close } = await openPage(stage.browser, stage.runtime.url, { locale });
      await page.goto(await linkUntil(workspaceId, Date.now() - 1_000, inAnHour()));
      await heading(page, title).waitFor();
      await page.getByText(advice).waitFor();
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
    await page.getByText("No subscription yet").waitFor();
    await until(() => Date.now() > opensUntil, 30_000);
    await page.reload();
    await page.getByText("No subscription yet").waitFor();

    await follow(page, link);
    const notice = page.getByRole("dialog", { name: "The link has expired" });
    await notice.getByText("This tab still shows Lyon.").waitFor();
    await notice.getByRole("button", { name: "Close" }).click();
    await notice.waitFor({ state: "hidden" });
    await page.getByRole("link", { name: "Usage" }).click();
    await heading(page, "Usage").waitFor();
    await close();
  });

  test("ends with the session", async () => {
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
    await page.getByText("No subscription yet").waitFor();
    await close();
  });

  test("is given once the server can be reached, and once the workspace has access", async () => {
    const workspaceId = await stage.makeWorkspace();
    const { PLATFORM } = stage.runtime.env;
    await PLATFORM.setWorkspaceAccess({ workspaceId, granted: false });
    const { page, close } = await openEmpty();
    await page.route("**/portal/api/session", (route) => route.abort());
    await page.goto(await stage.makeLink(workspaceId));
    await page.getByText("The server cannot be reached.").waitFor();
    await page.unrouteAll();
    await heading(page, "This workspace has no access").waitFor();
    expect(await keptIn(page)).toBe("");
    await PLATFORM.setWorkspaceAccess({ workspaceId, granted: true });
    await page.getByRole("button", { name: "Try again" }).click();
    await page.getByText("No subscription yet").waitFor();
    await close();
  });

  test("is lost when it is revoked, and restored with it", async () => {
    const workspaceId = await stage.makeWorkspace();
    const { page, close } = await stage.open(workspaceId, {});
    const { PLATFORM } = stage.runtime.env;
    await PLATFORM.setWorkspaceAccess({ workspaceId, granted: false });
    await page.getByRole("link", { name: "Usage" }).click();
    await heading(page, "This workspace has no access").waitFor();
    await page.getByRole("button", { name: "Try again" }).click();
    await heading(page, "This workspace has no access").waitFor();
    await PLATFORM.setWorkspaceAccess({ workspaceId, granted: true });
    await page.getByRole("button", { name: "Try again" }).click();
    await heading(page, "Usage").waitFor();
    await close();
  });

  test("reports a network failure or too many requests, and recovers", async () => {
    const { page, close } = await stage.open(await stage.makeWorkspace());
    await page.getByText("No subscription yet").waitFor();
    await page.context().setOffline(true);
    await page.getByRole("link", { name: "Usage" }).click();
    await page.getByText("The server cannot be reached.").waitFor();
    await page.context().setOffline(false);
    await page.getByText("600 requests per minute").waitFor();

    const limited = { code: "rate_limited", message: "…", details: { retry_after_seconds: 2 } };
    await page.route("**/portal/api/webhooks", (route) =>
      route.fulfill({ status: 429, headers: { "Retry-After": "2" }, json: { error: limited } }),
    );
    await page.getByRole("link", { name: "Subscriptions" }).click();
    await page.getByText("The page tries again in 2 seconds.").waitFor();
    await page.unrouteAll();
    await page.getByText("No subscription yet").waitFor();
    await close();
  });

  test("reports what does not exist, and links elsewhere", async () => {
    const { page, close } = await stage.open(await stage.makeWorkspace());
    for (const place of ["webhooks/whk_none", "webhooks/whk_none/evt_none", "nowhere"]) {
      await page.evaluate(`location.hash = "#/${place}"`);
      await page.getByText("There is nothing here").waitFor();
      await page.getByRole("link", { name: "See the subscriptions" }).click();
      await page.getByText("No subscription yet").waitFor();
    }
    await close();
  });

  test("is possible with the keyboard alone, with the focus always visible", async () => {
    const workspaceId = await stage.makeWorkspace();
    await stage.subscribe(workspaceId);
    const { page, close } = await stage.open(workspaceId);
    const focused = () =>
      page.evaluate<string>(
        "document.activeElement === document.body ? '' : document.activeElement.textContent",
      );
    await page.getByText("Healthy").waitFor();
    await page.keyboard.press("Tab");
    expect(await focused()).toBe("Skip to the content");
    const reach = async (text: string) => {
      for (let i = 0; i < 30 && !(await focused()).includes(text); i++) {
        await page.keyboard.press("Tab");
        const outline = `(({ outlineStyle }) => outlineStyle)`;
        const element = "document.activeElement";
        expect(
          await page.evaluate(
            `${element} === document.body ? "solid" : [getComputedStyle(${element}), getComputedStyle(${element}, "::after")].map(${outline}).join()`,
          ),
        ).toContain("solid");
      }
      expect(await focused()).toContain(text);
      await page.keyboard.press("Enter");
    };
    await reach("/in");
    await page.getByRole("heading", { name: "Deliveries", exact: true }).waitFor();
    await reach("New secret…");
    const dialog = page.getByRole("dialog", { name: "Create a new secret" });
    await dialog.waitFor();
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "hidden" });
    expect(await focused()).toBe("New secret…");
    await close();
  });

  /** Brings the page to each of its places and opens each dialog; names each. */
  async function* places({ page }: Visit): AsyncGenerator<string> {
    await page.locator(".card").waitFor();
    yield "subscriptions";
    await page.locator(".card a").click();
    await page.locator("table.rows").waitFor();
    await page.locator("summary").first().click();
    yield "a subscription";
    const buttons = page.locator("main > .buttons > button");
    for (let i = 0; i < (await buttons.count()); i++) {
      await buttons.nth(i).click();
      await page.getByRole("dialog").waitFor();
      yield `dialog ${i}`;
      await page.keyboard.press("Escape");
      await page.getByRole("dialog").waitFor({ state: "hidden" });
    }
    await page.locator("tbody th a").first().click();
    await page.locator("pre").waitFor();
    yield "a delivery";
    await page.evaluate(`location.hash = "#/subscribe"`);
    await page.locator("form").waitFor();
    await page.locator("[type=submit]").click();
    yield "the form";
    await page.evaluate(`location.hash = "#/usage"`);
    await page.locator(".key").waitFor();
    yield "usage";
    const link = await stage.makeLink(await stage.makeWorkspace("Groupe Horizon Bretagne"));
    await follow(page, link);
    await page.getByRole("dialog").waitFor();
    yield "the question of a link";
  }

  test.each(["light", "dark"] as const)(
    "fits desktop and phone, and has no fault that axe finds, in %s",
    async (colorScheme) => {
      const workspaceId = await stage.makeWorkspace();
      const path = "/a/path/of/a/customer/that/is/too/long/for/any/phone?token=t0ken-t0ken-t0ken";
      await stage.subscribe(workspaceId, ["lead.created"], path);
      stage.answerWith(500);
      await stage.recordLeads(workspaceId, 3);
      await until(() => stage.receiver.posts.length > 0);
      for (const width of [1440, PHONE_WIDTH]) {
        const viewport = { width, height: 900 };
        const locale = width === PHONE_WIDTH ? "fr-FR" : "en-GB";
        const device = { viewport, colorScheme, locale, bypassCSP: true };
        const visit = await stage.open(workspaceId, device);
        for await (const place of places(visit)) {
          expect([place, await violationsIn(visit.page)]).toEqual([place, []]);
          expect([place, await widthOf(visit.page)]).toEqual([place, width]);
        }
        await visit.close();
      }
    },
  );

  test("is in French for French readers, and in English for everyone else", async () => {
    const workspaceId = await stage.makeWorkspace();
    const id = await stage.subscribe(workspaceId);
    stage.answerWith(204);
    for (const [locale, lang, texts] of [
      [
        "fr-CA",
        "fr",
        ["Abonnements", "En bon état", "Livraisons", "Aucune livraison", "S’abonner"],
      ],
      ["de-DE", "en", ["Subscriptions", "Healthy", "Deliveries", "No delivery yet", "Subscribe"]],
    ] as const) {
      const { page, faults, close } = await stage.open(workspaceId, { locale });
      expect(await page.locator("html").getAttribute("lang")).toBe(lang);
      const seen = [await page.locator("body").innerText()];
      for (const place of [`webhooks/${id}`, "subscribe", "usage"]) {
        await page.evaluate(`location.hash = "#/${place}"`);
        await page.locator("main .empty, form, .key").first().waitFor();
        seen.push(await page.locator("body").innerText());
      }
      for (const text of texts) expect(seen.join("\n")).toContain(text);
      expect(await faults()).toEqual([]);
      await close();
    }
  });
});
