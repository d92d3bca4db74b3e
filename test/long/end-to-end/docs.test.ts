import type { BrowserContextOptions, Page } from "playwright-core";
import { afterEach, beforeAll, expect, test } from "vitest";
import { WebhookEvent } from "../../../src/contract/enumerations.ts";
import {
  colourViolationsIn,
  hasNewKinds,
  openBrowser,
  openPage,
  PHONE_WIDTH,
  see,
  structureViolationsIn,
  type Visit,
  widthOf,
} from "../../node/support/browser.ts";
import { shareRuntime } from "../../node/support/local-runtime.ts";
import { openWorkspace } from "../../node/support/workspace.ts";

const browser = await openBrowser();
const runtime = await shareRuntime();
const workspace = await openWorkspace(runtime, { agentName: "Garage <b>du</b> Parc" });
const [automationId = ""] = await workspace.recordAutomations(["1"]);
const { apiKey } = workspace;
let desktop: Visit;
let phone: Visit;

beforeAll(async () => {
  if (!browser) return;
  const visit = async (device: BrowserContextOptions) => {
    const visit = await openPage(browser, runtime.url, device);
    expect((await goToDocs(visit.page))?.status()).toBe(200);
    return visit;
  };
  desktop = await visit({ viewport: { width: 1280, height: 900 } });
  const viewport = { width: PHONE_WIDTH, height: 844 };
  phone = await visit({ viewport, isMobile: true, hasTouch: true });
});

// No page has an error, breaks its policy or asks another host for anything.
afterEach(async () => {
  if (!browser) return;
  expect([await desktop.faults(), await phone.faults()]).toEqual([[], []]);
});

const goToDocs = (page: Page, path = "/docs") => page.goto(new URL(path, runtime.url).href);
const article = (name: string, page = desktop.page) => page.getByRole("article", { name });
const contents = () => desktop.page.getByRole("navigation", { name: "Contents" });
/** The paths of all pages, in reading order. */
const everyPage = (page: Page) =>
  page.evaluate<string[]>(
    "[...document.querySelectorAll('.contents details > ul > li > a')].map((link) => link.pathname)",
  );
const searchField = (page = desktop.page) => page.getByRole("combobox", { name: "Search" });

test("marks the part of the guide that is read", async () => {
  const { page } = desktop;
  await goToDocs(page, "/docs/guides/retries");
  const parts = page.getByRole("navigation", { name: "On this page" });
  await parts.getByRole("link", { name: "Recover missed events" }).click();
  await parts.locator('[aria-current][href="#recover-missed-events"]').waitFor();
});

test("folds the fields inside a field, and marks the page in the contents", async () => {
  const { page } = desktop;
  await goToDocs(page, "/docs/reference/leads");
  const current = contents().locator("[aria-current=page]");
  expect(await current.getAttribute("href")).toBe("/docs/reference/leads");
  expect(await current.isVisible()).toBe(true);
  const section = article("List the leads of the workspace");
  const email = section.getByText("The person's e-mail address", { exact: false });
  expect(await email.isVisible()).toBe(false);
  await section.getByText("Fields of Lead").click();
  expect(await email.isVisible()).toBe(true);
  // The form is there without scrolling.
  expect((await page.locator(".try > summary").first().boundingBox())?.y).toBeLessThan(800);
});

test("Each request is shown in nine languages, and the one that is chosen is kept for other pages", async () => {
  const { page } = desktop;
  await goToDocs(page, "/docs/reference/runs");
  const requests = await page.evaluate(`[...document.querySelectorAll(".request")].map((request) =>
    [...request.querySelectorAll(".tab")].map((tab) =>
      [tab.querySelector("summary").textContent, tab.querySelector("code").textContent]))`);
  const languages = [
    ["curl", expect.stringContaining("curl ")],
    ["Windows", expect.stringContaining("Invoke-RestMethod")],
    ["TypeScript", expect.stringContaining("await fetch(")],
    ["Python", expect.stringContaining("urllib.request")],
    ["PHP", expect.stringContaining("<?php")],
    ["Go", expect.stringContaining("package main")],
    ["C#", expect.stringContaining("HttpClient")],
    ["Java", expect.stringContaining("java.net.http")],
    ["Ruby", expect.stringContaining("Net::HTTP")],
  ];
  expect(requests).toEqual(Array(2).fill(languages));
  const shown = () => page.locator(".tab pre:visible").allTextContents();
  for (const [name, mark] of [
    ["Go", "package main"],
    ["Python", "urllib.request"],
  ] as const) {
    const tab = page.locator(".request").nth(1).getByText(name, { exact: true });
    await tab.scrollIntoViewIfNeeded();
    const before = (await tab.boundingBox())?.y;
    await tab.click();
    expect(await shown()).toEqual(Array(2).fill(expect.stringContaining(mark)));
    expect(Math.abs(((await tab.boundingBox())?.y ?? 0) - (before ?? 0))).toBeLessThan(2);
  }
  await goToDocs(page, "/docs/guides/webhooks");
  expect(await shown()).toEqual([expect.stringContaining("urllib.request")]);
  // Another choice, which this page does not have, takes nothing back.
  await goToDocs(page, "/docs/guides/sync");
  await page.locator("summary", { hasText: "Postgres" }).click();
  expect(await shown()).toEqual([expect.stringContaining("jsonb")]);
  await goToDocs(page, "/docs/guides/handlers");
  expect((await shown()).at(0)).toContain("import hmac");
});

// What is found first is tested with the index of the search.
test("a key opens the search, and Enter leads to the first place that has the words", async () => {
  const { page } = desktop;
  await goToDocs(page, "/docs/guides/portal");
  for (const [key, words, path] of [
    ["/", "rotate a key", "/docs/guides/authentication#rotating-a-key"],
    ["Control+k", "postgres", "/docs/guides/sync#postgres"],
  ] as const) {
    await page.keyboard.press(key);
    await searchField().fill(words);
    await page.getByRole("listbox", { name: "Found" }).getByRole("option").first().waitFor();
    await searchField().press("Enter");
    await page.waitForURL(`**${path}`);
    // As far as there is more of the page below it.
    const isAtTop = () =>
      page.evaluate<boolean>(`(() => {
        const found = document.getElementById("${path.split("#")[1]}");
        const { top } = (found.closest(".tabs") ?? found).getBoundingClientRect();
        return top < 300 || (top < innerHeight && scrollY + innerHeight >= document.body.scrollHeight - 1);
      })()`);
    await expect.poll(isAtTop).toBe(true);
  }
});

// Where each of them leads is tested with the index of the search.
test("leads from an address of the former single page to where its section is now", async () => {
  const { page } = desktop;
  await goToDocs(page, "/docs/guides/portal");
  await goToDocs(page, "/docs#errors-codes");
  await page.waitForURL("**/docs/guides/errors#codes");
});

test("opens the alternative that an address names", async () => {
  const { page } = desktop;
  await goToDocs(page, "/docs/guides/client#copy-ts");
  await page.locator("#copy-ts pre").waitFor();
});

test("says that it finds nothing, and lets the search be left", async () => {
  const { page } = desktop;
  await goToDocs(page, "/docs/guides/portal");
  await page.getByRole("button", { name: "Search" }).click();
  await searchField().fill("zzzzqqqq");
  await see(page, "Nothing found.");
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "hidden" });
});

test("sends what the form holds, a header too, and asks before it deletes", async () => {
  const { page } = desktop;
  await goToDocs(page, "/docs/reference/webhooks");
  await page.getByLabel("API key").fill(apiKey);
  const subscribe = article("Subscribe to events");
  const send = subscribe.getByRole("button", { name: "Send request" });
  await subscribe.locator(".try > summary").click();
  await see(subscribe, "On this machine, http");
  await send.click();
  await see(subscribe, "Replace “…” in the body first.");
  const body = subscribe.getByLabel("Body");
  await body.fill((await body.inputValue()).replace("https://…", "https://10.0.0.1/hook"));
  await subscribe.getByLabel("Idempotency-Key").fill("twice");
  const ids: string[] = [];
  for (const _ of [1, 2]) {
    const answered = page.waitForResponse((response) => response.url().endsWith("/v1/webhooks"));
    await send.click();
    ids.push((await (await answered).json()).id);
  }
  expect(ids).toEqual([expect.stringMatching(/^whk_/), ids[0]]);
  await subscribe.locator(".result .hljs-attr").first().waitFor();
  const { id } = JSON.parse(await subscribe.locator(".result pre").innerText());
  expect(id).toBe(ids[0]);

  const remove = article("Remove a webhook");
  const result = remove.locator(".result");
  await remove.locator(".try > summary").click();
  await remove.getByLabel("id").fill(id);
  const asked: string[] = [];
  for (const answer of ["dismiss", "accept"] as const) {
    page.once("dialog", (dialog) => {
      asked.push(dialog.message());
      return dialog[answer]();
    });
    await remove.getByRole("button", { name: "Send request" }).click();
    if (answer === "dismiss") expect(await result.innerText()).toBe("");
    else await see(result, "204");
  }
  expect(asked).toEqual(Array(2).fill(`DELETE /v1/webhooks/${id}: this cannot be undone.`));
});

test("examples follow the form beside them, and a response can be copied", async () => {
  const { page } = desktop;
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"]);
  const copied = () => page.evaluate<string>("navigator.clipboard.readText()");
  /** Otherwise, a button says so for a second and a half, which a busy machine may miss. */
  const stopTimers = () => page.evaluate("globalThis.setTimeout = () => 0");
  await goToDocs(page, "/docs/reference/automations");
  await page.getByLabel("API key").fill(apiKey);
  const change = article("Pause or activate an automation");
  const example = change.locator(".request .tab[open] code");
  await change.locator(".try > summary").click();
  await change.getByLabel("id").fill("aut_other");
  await change.getByLabel("Body").fill('{ "status": "stopped" }');
  expect(await example.innerText()).toContain("/v1/automations/aut_other");
  expect(await example.innerText()).toContain('{"status":"stopped"}');
  await change.getByRole("button", { name: "Send request" }).click();
  const result = change.locator(".result");
  await see(result, "The message is in French");
  await stopTimers();
  await result.getByRole("button", { name: "Copy" }).click();
  await see(result, "Copied");
  expect(await copied()).toContain('"code": "invalid_request"');
  expect(await result.getByRole("link").getAttribute("href")).toMatch(/errors#invalid-request$/);

  await goToDocs(page, "/docs/guides/retries");
  await stopTimers();
  await page.getByRole("button", { name: "Copy page" }).click();
  await see(page, "Copied");
  expect(await copied()).toMatch(/^# Retries/);
  // The browser reports the 400 that was asked for.
  expect(await desktop.faults()).toEqual([expect.stringContaining("status of 400")]);
});

test("shows code without scrolling on the first page", async () => {
  await goToDocs(desktop.page);
  const code = desktop.page.locator("main pre:visible").first();
  expect((await code.boundingBox())?.y).toBeLessThan(700);
});

test("fits a phone on each page, and has no fault of structure that axe finds there", async () => {
  const { page } = phone;
  await goToDocs(page);
  const kinds = new Set<string>();
  for (const path of await everyPage(page)) {
    await putInPlace(page, path);
    expect(await widthOf(page), path).toBe(PHONE_WIDTH);
    await unfold(page);
    if (await hasNewKinds(page, kinds)) expect(await structureViolationsIn(page), path).toEqual([]);
  }
});

test("lets a request be made on a phone, and its response does not scroll the page sideways", async () => {
  const { page } = phone;
  await goToDocs(page, "/docs/reference/automations");
  await page.getByLabel("API key").fill(apiKey);
  const operation = page.getByRole("article", { name: "List the automations of the workspace" });
  await operation.getByRole("link", { name: "Try it" }).tap();
  await operation.getByRole("button", { name: "Send request" }).click();
  const result = operation.locator(".result");
  await see(result, automationId);
  // An id or a time may have these digits, too.
  await result.getByText("200", { exact: true }).waitFor();
  // Highlighted, and still text.
  expect(await result.innerText()).toContain("Garage <b>du</b> Parc");
  expect(await result.locator(".hljs-string").count()).toBeGreaterThan(0);
  expect(await result.innerText()).toMatch(/X-Request-Id [0-9a-f-]{36}/);
  expect(await widthOf(page)).toBe(PHONE_WIDTH);
});

test("has enough contrast in light and dark, and no fault that axe finds where scripts run", async () => {
  const { page } = desktop;
  const looks = new Set<string>();
  const expectContrast = async (place: string) => {
    for (const colorScheme of ["light", "dark"] as const) {
      await page.emulateMedia({ colorScheme });
      expect(await colourViolationsIn(page, looks), place).toEqual([]);
    }
  };
  // Together they have each colour of a text and its background.
  for (const path of ["/docs", "/docs/guides/headers", "/docs/reference/webhooks"]) {
    await goToDocs(page, path);
    await unfold(page);
    if (path === "/docs/reference/webhooks") await flattenCode(page);
    await expectContrast(path);
  }
  expect(await structureViolationsIn(page)).toEqual([]);
  await goToDocs(page, "/docs/guides/headers");
  await page.getByRole("button", { name: "Search" }).click();
  await searchField(page).fill("webhook");
  await page.getByRole("option").first().waitFor();
  await expectContrast("the search");
  expect(await structureViolationsIn(page)).toEqual([]);
  await page.emulateMedia({ colorScheme: null });
});

const unfold = (page: Page) =>
  page.evaluate('for (const one of document.querySelectorAll("main details")) one.open = true');

/** Removes the elements that only colour code. */
const flattenCode = (page: Page) =>
  page.evaluate(
    "for (const code of document.querySelectorAll('pre code')) code.textContent = code.textContent",
  );

/** Shows another page without loading scripts and axe again, and its code without elements that only colour it. */
async function putInPlace(page: Page, path: string): Promise<void> {
  await page.evaluate(`(async () => {
    const text = await (await fetch("${path}")).text();
    const { body, title } = new DOMParser().parseFromString(text, "text/html");
    // The links to all pages, which are on each of them.
    if (document.body.dataset.examined) body.querySelector(".contents").textContent = "";
    body.dataset.examined = "true";
    for (const code of body.querySelectorAll("pre code")) code.textContent = code.textContent;
    Object.assign(document, { body, title });
  })()`);
}

test("can be used without a mouse, with the focus always visible", async () => {
  const { page } = desktop;
  // Far down in the contents, which scroll to it.
  await goToDocs(page, "/docs/reference/webhooks");
  await page.keyboard.press("Tab");
  expect(await page.evaluate("document.activeElement.textContent")).toBe("Skip to the content");
  for (let i = 0; i < 40; i++) {
    const outline = await page.evaluate(
      "getComputedStyle(document.activeElement).outlineStyle + document.activeElement.tagName",
    );
    expect(outline).toMatch(/^solid/);
    await page.keyboard.press("Tab");
  }
});

test("keeps the key for the pages of the tab, and forgets it when asked to", async () => {
  const { page } = desktop;
  await goToDocs(page, "/docs/reference/leads");
  await page.getByLabel("API key").fill(apiKey);
  await goToDocs(page, "/docs/reference/runs");
  expect(await page.getByLabel("API key").inputValue()).toBe(apiKey);
  expect(await page.evaluate("JSON.stringify(localStorage)")).not.toContain(apiKey);
  const other = await page.context().newPage();
  await goToDocs(other, "/docs/reference/leads");
  expect(await other.getByLabel("API key").inputValue()).toBe("");
  await other.close();
  await page.getByRole("button", { name: "Forget" }).click();
  expect(await page.getByLabel("API key").inputValue()).toBe("");
  expect(await page.evaluate("JSON.stringify(sessionStorage)")).not.toContain(apiKey);
});

test("keeps the theme that is chosen", async () => {
  const { page } = desktop;
  await goToDocs(page);
  const background = () => page.evaluate<string>("getComputedStyle(document.body).backgroundColor");
  const before = await background();
  const button = page.getByRole("button", { name: "Theme" });
  for (const _ of ["light", "dark"]) await button.click();
  expect(await background()).not.toBe(before);
  await page.reload();
  expect(await background()).not.toBe(before);
  await button.click();
  expect(await background()).toBe(before);
});

test("shows everything but the forms without scripts", async () => {
  const page = await browser.newPage({ javaScriptEnabled: false });
  await goToDocs(page);
  await page.getByRole("link", { name: "Webhooks" }).last().click();
  // The click does not wait until the next page is there. Besides the event types, it has three operations.
  const articles = 3 + WebhookEvent.options.length;
  await expect.poll(() => page.getByRole("article").count()).toBe(articles);
  await page.close();
});
