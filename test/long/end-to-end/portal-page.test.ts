import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import type { Page } from "playwright-core";
import { beforeAll, expect, test } from "vitest";
import { ROOT } from "../../../scripts/shared/checkout.ts";
import { HOUR_MS } from "../../../src/contract/time.ts";
import {
  colourViolationsIn,
  cutOffIn,
  hasNewKinds,
  resize,
  see,
  structureViolationsIn,
  tooSmallIn,
  type Visit,
  widthOf,
} from "../../node/support/browser.ts";
import { heading, setStage } from "../../node/support/portal.ts";
import { until } from "../../support/until.ts";

// The language of the reader's browser is one that the portal lacks, so the tests read this page in English.
const stage = await setStage({ locale: "de-DE" });
let workspaceId: string;
let webhookId: string;

beforeAll(async () => {
  if (!stage.browser) return;
  workspaceId = await stage.makeWorkspace();
  webhookId = await stage.subscribe(workspaceId);
  await stage.recordLeads(workspaceId, 2);
  const isDelivered = async () =>
    (await stage.runtime.env.PLATFORM.readWebhook({ webhookId })).successRate === 1;
  await until(isDelivered);
});

/** Shows the home page of the workspace that tests share, in the page that they have in turn. */
async function open(): Promise<Visit> {
  const visit = await stage.takePage();
  const { page } = visit;
  if (page.url() === "about:blank") await stage.enter(visit, workspaceId);
  else await goTo(page, "webhooks", ".webhooks");
  await page.locator(".webhooks").waitFor();
  return visit;
}

/** Shows another place, which has the element `shown`. */
async function goTo(page: Page, place: string, shown: string): Promise<void> {
  await page.evaluate(`location.hash = "#/${place}"`);
  await page.locator(shown).first().waitFor();
}

test("the page is smaller than 70 KB, compressed", () => {
  const folder = join(ROOT, "dist/assets/portal");
  const files = readdirSync(folder);
  expect(files.map((file) => file.split(".").at(-1)).toSorted()).toEqual(["css", "html", "js"]);
  const sizes = files.map((file) => gzipSync(readFileSync(join(folder, file))).length);
  expect(sizes.reduce((sum, size) => sum + size)).toBeLessThan(70_000);
});

test("the page can be used with the keyboard alone, with the focus always visible", async () => {
  await stage.takeEmptyPage();
  const { page, faults } = await open();
  const focused = () =>
    page.evaluate<string>(
      "document.activeElement === document.body ? '' : document.activeElement.textContent",
    );
  await page.keyboard.press("Tab");
  expect(await focused()).toBe("Skip to the content");
  const outlines = `document.activeElement === document.body ? "solid" : [null, "::after"].map(
    (part) => getComputedStyle(document.activeElement, part).outlineStyle).join()`;
  const reach = async (text: string) => {
    for (let i = 0; i < 30 && !(await focused()).includes(text); i++) {
      await page.keyboard.press("Tab");
      expect(await page.evaluate(outlines)).toContain("solid");
    }
    expect(await focused()).toContain(text);
    await page.keyboard.press("Enter");
  };
  await reach("/in");
  await page.getByRole("heading", { name: "Latest deliveries" }).waitFor();
  await reach("Edit…");
  const dialog = page.getByRole("dialog", { name: "Edit the webhook" });
  await dialog.waitFor();
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "hidden" });
  expect(await focused()).toBe("Edit…");
  expect(await faults()).toEqual([]);
});

/** Brings the page to each of its places and opens each dialog; names each. */
async function* places({ page }: Visit): AsyncGenerator<string> {
  const go = (place: string, shown: string) => goTo(page, place, shown);
  await page.locator(".webhooks").waitFor();
  yield "home";
  await page.locator(".webhooks a").click();
  await page.locator("section .rows").waitFor();
  await page.locator(".chart summary").click();
  yield "a webhook";
  const webhook = new URL(page.url()).hash.slice(2);
  // Not the buttons of their dialogs, which stay in the document for a moment after they are hidden.
  const actions = page.locator(".actions > button");
  for (let i = 0; i < (await actions.count()); i++) {
    await actions.nth(i).click();
    await page.getByRole("dialog").waitFor();
    yield `dialog ${i}`;
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "hidden" });
  }
  await go(`${webhook}/settings`, ".setting");
  yield "settings";
  const endings = page.locator(".setting > div > button").filter({ hasText: "…" });
  for (let i = 0; i < (await endings.count()); i++) {
    await endings.nth(i).click();
    await page.getByRole("dialog").waitFor();
    yield `dialog ${i} of the settings`;
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "hidden" });
  }
  await go(`${webhook}/history`, ".changes");
  yield "the history, and a replay that runs";
  await page.locator(".replays button").click();
  await page.locator(".replays .warn").waitFor();
  yield "a replay that was stopped";
  await go("history", ".changes");
  yield "the history of the workspace";
  await go(`${webhook}/deliveries`, ".list tbody a");
  yield "deliveries";
  await page.locator(".list tbody a").first().click();
  await page.locator(".detail pre").first().waitFor();
  yield "a delivery";
  await go("subscribe", "form");
  await page.locator("[type=submit]").click();
  yield "the form";
  await go("failures", ".rows tbody a");
  yield "failures";
  await go("events", ".body");
  yield "event types";
  await go("usage", ".key");
  yield "usage";
  const link = await stage.makeLink(await stage.makeWorkspace("Groupe Horizon Bretagne"));
  await page.evaluate((to) => location.assign(to), link);
  await page.getByRole("dialog").waitFor();
  yield "the question of a link";
}

/** The texts that stand beside elements. They would stay as they are once the browser has translated the page. */
const looseTextsIn = (page: Page) =>
  page.evaluate<string[]>(`(() => {
    const texts = [];
    const walk = document.createTreeWalker(document.getElementById("portal"), NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) texts.push(walk.currentNode);
    return texts
      .filter(({ data, parentNode: { childNodes, localName } }) =>
        data.trim() !== "" && childNodes.length > 1 && localName !== "label")
      .map(({ data }) => data);
  })()`);

/** The width at which a page must not be scrolled sideways (WCAG 1.4.10), where most could be cut off. */
const NARROW = 320;
/** The widths of a desktop, and of that at twice the zoom. */
const WIDER = [1440, 720];

/** A circuit that lets nothing through for hours. */
const OPEN_CIRCUIT = {
  ...{ rejected: [], step: 3, since: Date.now(), probeAt: Date.now() + 5 * HOUR_MS },
  ...{ outcome: "answered", status: 500 },
};

test("the page fits phones and desktops, also at twice the zoom, and is legible in light and dark", {
  timeout: 300_000,
}, async () => {
  const workspaceId = await stage.makeWorkspace();
  const path = "/a/path/of/a/customer/that/is/too/long/for/any/phone?token=t0ken-t0ken-t0ken";
  const webhookId = await stage.subscribe(workspaceId, ["lead.created"], path);
  const { DB, PLATFORM } = stage.runtime.env;
  const read = () => PLATFORM.readWebhook({ webhookId });
  stage.answerWith(204);
  await stage.recordLeads(workspaceId);
  await until(async () => (await read()).successRate === 1);
  stage.answerWith(500);
  await stage.recordLeads(workspaceId, 3);
  await until(async () => (await read()).retrying === 3);
  // A replay waits for the server.
  await DB.prepare("UPDATE subscriptions SET circuits = ? WHERE id = ?")
    .bind(JSON.stringify({ "lead.created": OPEN_CIRCUIT }), webhookId)
    .run();
  const since = new Date(Date.now() - HOUR_MS).toISOString();
  await PLATFORM.redeliver({ webhookId, since, states: ["delivered"] });
  // French has the longer texts.
  const viewport = { width: NARROW, height: 900 };
  const visit = await stage.open(workspaceId, { viewport, locale: "fr-FR", hasTouch: true });
  const { page } = visit;
  const looks = { light: new Set<string>(), dark: new Set<string>() };
  const kinds = new Set<string>();
  const headings = new Set<string>();
  for await (const place of places(visit)) {
    const isDialog = place.startsWith("dialog");
    if (isDialog) {
      const title = page.getByRole("dialog").getByRole("heading");
      headings.add(await title.evaluate((heading) => getComputedStyle(heading).font));
    }
    expect([place, await looseTextsIn(page)]).toEqual([place, []]);
    expect([place, await tooSmallIn(page)]).toEqual([place, []]);
    if (await hasNewKinds(page, kinds)) {
      expect([place, await structureViolationsIn(page)]).toEqual([place, []]);
      // Colours do not depend on the width, and structure not on the colours.
      for (const colorScheme of ["dark", "light"] as const) {
        await page.emulateMedia({ colorScheme });
        expect([place, await colourViolationsIn(page, looks[colorScheme])]).toEqual([place, []]);
      }
    }
    // A dialog is no wider than a phone. The next place is opened on one.
    for (const width of isDialog ? [NARROW] : [...WIDER, NARROW]) {
      if (!isDialog) await resize(page, width, 900);
      expect([place, await widthOf(page), await cutOffIn(page)]).toEqual([place, width, []]);
    }
    expect(await page.locator("body").innerText()).not.toContain("t0ken");
  }
  // Dialogs are opened in places whose own headings differ.
  expect(headings.size).toBe(1);
  await visit.close();
});

test("The page has the platform's name and its colour, legibly, in light and dark", async () => {
  const { page, faults } = await stage.takeEmptyPage();
  // What a deployment tells the page is tested with the Worker.
  await page.route("**/portal", async (route) => {
    const response = await route.fetch();
    const body = (await response.text())
      .replace(/(?<=<meta name="application-name" content=")/, "Acme &lt;b>")
      .replace(/(?<=<meta name="theme-color" content=")/, "#ffe000");
    await route.fulfill({ response, body });
  });
  await page.goto(await stage.makeLink(workspaceId));
  await see(page, "Acme <b> · Groupe Horizon");
  expect(await page.title()).toBe("Webhooks – Groupe Horizon – Acme <b>");
  const icon = await page.locator("link[rel=icon]").getAttribute("href");
  expect(decodeURIComponent(String(icon))).toContain('fill="#ffe000"');
  const add = page.locator(".button.primary").first();
  for (const [colorScheme, accent] of [
    ["light", /^oklch\(0\.45 /],
    ["dark", /^oklch\(0\.[89]/],
  ] as const) {
    await page.emulateMedia({ colorScheme });
    const colour = await add.evaluate((button) => getComputedStyle(button).backgroundColor);
    expect(colour).toMatch(accent);
    expect(await colourViolationsIn(page, new Set())).toEqual([]);
  }
  expect(await faults()).toEqual([]);
  await stage.takeEmptyPage();
});

test("the page is in English for a reader whose language it lacks, and in the one that the reader chose, from then on", async () => {
  const { page, faults } = await open();
  expect(await page.locator("html").getAttribute("lang")).toBe("en");
  const docs = page.getByRole("link", { name: "Docs" });
  expect(await docs.getAttribute("href")).toBe("/docs");
  await goTo(page, "usage", ".key");
  await page.getByLabel("Language").selectOption("Français");
  await heading(page, "Clés d’API").waitFor();
  await see(page, "Heures et filtres exprimés dans le fuseau ");
  await page.reload();
  await heading(page, "Clés d’API").waitFor();
  expect(await page.locator("html").getAttribute("lang")).toBe("fr");
  expect(await page.getByLabel("Langue").inputValue()).toBe("fr");
  expect(await faults()).toEqual([]);
  await stage.takeEmptyPage();
});

test("the page has the theme that the reader chose, from then on", async () => {
  const { page, faults } = await open();
  const paper = () => page.evaluate("getComputedStyle(document.body).backgroundColor");
  const light = await paper();
  await page.getByLabel("Theme").selectOption("Dark");
  const dark = await paper();
  expect(dark).not.toBe(light);
  await page.reload();
  await heading(page, "Your webhook is working").waitFor();
  expect(await paper()).toBe(dark);
  await page.emulateMedia({ media: "print" });
  expect(await paper()).toBe(light);
  expect(await faults()).toEqual([]);
  await stage.takeEmptyPage();
});

test("the printed page has no buttons, filters or navigation", async () => {
  const { page, faults } = await open();
  const controls = page.locator("button, .button, summary, select, input, .tabs, .bar nav a");
  await page.emulateMedia({ media: "print" });
  await goTo(page, `webhooks/${webhookId}`, "section .rows tbody tr");
  expect(await controls.filter({ visible: true }).allInnerTexts()).toEqual([]);
  await goTo(page, `webhooks/${webhookId}/deliveries`, ".list tbody tr");
  expect(await controls.filter({ visible: true }).allInnerTexts()).toEqual([]);
  expect(await page.locator(".list tbody tr").first().isVisible()).toBe(true);
  await page.emulateMedia({ media: null });
  expect(await controls.filter({ visible: true }).count()).toBeGreaterThan(5);
  expect(await faults()).toEqual([]);
});
