import { type Browser, type BrowserContextOptions, chromium, type Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { type Runtime, startRuntime } from "../../../scripts/shared/runtime.ts";
import {
  findBrowser,
  openPage,
  PHONE_WIDTH,
  type Visit,
  violationsIn,
  widthOf,
} from "../../node/support/browser.ts";

const executablePath = findBrowser();

describe.skipIf(!executablePath)("the docs page in a browser", () => {
  let runtime: Runtime;
  let browser: Browser;
  let apiKey: string;
  let automationId: string;
  let desktop: Visit;
  let phone: Visit;

  beforeAll(async () => {
    runtime = await startRuntime();
    const { PLATFORM } = runtime.env;
    const { workspaceId } = await PLATFORM.createWorkspace({ name: "Agence" });
    apiKey = String((await PLATFORM.createApiKey({ workspaceId })).apiKey);
    const agent = { reference: "a", name: "Garage <b>du</b> Parc" };
    const automation = { reference: "1", type: "lead_ads", provider: "facebook", agent } as const;
    const automations = [{ ...automation, status: "active" as const }];
    const { ids } = await PLATFORM.recordAutomations({ workspaceId, automations });
    automationId = String(ids[0]);
    browser = await chromium.launch({ executablePath: String(executablePath) });
    const { url } = runtime;
    desktop = await visit(browser, url, { viewport: { width: 1280, height: 900 } });
    const viewport = { width: PHONE_WIDTH, height: 844 };
    phone = await visit(browser, url, { viewport, isMobile: true, hasTouch: true });
  }, 300_000);

  afterAll(async () => {
    await browser?.close();
    await runtime?.stop();
  });

  test("opens without an error, a policy violation or a request to another host", async () => {
    const { page, faults } = desktop;
    await page.getByRole("heading", { level: 1 }).waitFor();
    await readThrough(page);
    expect(await faults()).toEqual([]);
  });

  test("opens with the quickstart, then the guides, then the reference", async () => {
    const headings = await desktop.page.getByRole("main").locator("h2").allTextContents();
    expect(headings.slice(0, 2)).toEqual(["Quickstart", "Events"]);
    const guides = ["Pagination", "Quota", "Errors", "Webhooks", "Example receivers"];
    const reference = headings.indexOf("Every operation and event");
    for (const title of guides) expect(headings.slice(0, reference)).toContain(title);
    expect(headings.slice(reference + 1)).toEqual(["Automations", "Leads", "Runs", "Webhooks"]);
    await desktop.page.getByRole("img", { name: "The way of an event" }).waitFor();
  });

  test("shows every operation and event of the document, its success response before its errors", async () => {
    const { page, faults } = desktop;
    const answer = await fetch(new URL("/openapi.json", runtime.url));
    const operations = operationsOf((await answer.json()) as OpenApiDocument);
    expect(operations).toHaveLength(12);
    for (const { summary, path, isEvent } of operations) {
      await page.getByRole("navigation", { name: "Contents" }).getByText(summary).click();
      const section = page.getByRole("article", { name: summary });
      await section.getByText(path, { exact: true }).first().waitFor();
      expect(await section.getByText("Try it").count(), summary).toBe(isEvent ? 0 : 1);
      const text = await section.innerText();
      if (isEvent) expect(text, summary).not.toMatch(/key_live|Authorization|Errors/);
      else expect(text.indexOf("Errors"), summary).toBeGreaterThan(text.indexOf("Response 2"));
    }
    expect(await faults()).toEqual([]);
  });

  test("folds the fields inside a field", async () => {
    const section = desktop.page.getByRole("article", { name: "List the leads of the workspace" });
    const email = section.getByText("The person's e-mail address", { exact: false });
    expect(await email.isVisible()).toBe(false);
    await section.getByText("Fields of Lead").click();
    expect(await email.isVisible()).toBe(true);
  });

  test("lists the parts of the guide that is read, next to it", async () => {
    const { page } = desktop;
    const contents = page.getByRole("navigation", { name: "Contents" });
    await contents.getByText("Webhooks", { exact: true }).first().click();
    const part = contents.getByRole("link", { name: "Disabling" });
    await part.click();
    await page.locator('.contents [aria-current][href="#webhooks-disabling"]').waitFor();
    await contents.getByText("Quickstart").click();
    await part.waitFor({ state: "hidden" });
  });

  test("shows each request in four languages, and all of them in the one that is chosen", async () => {
    const { page } = desktop;
    const requests = page.locator(".request");
    expect(await requests.count()).toBe(9);
    const shown = () => requests.locator("pre:visible").allTextContents();
    for (const [name, mark] of [
      ["TypeScript", "await fetch("],
      ["Python", "urllib.request"],
      ["PHP", "<?php"],
      ["curl", "curl "],
    ] as const) {
      const tab = requests.nth(4).locator("summary", { hasText: name });
      await tab.scrollIntoViewIfNeeded();
      const before = (await tab.boundingBox())?.y;
      await tab.click();
      expect(await shown()).toEqual(Array(9).fill(expect.stringContaining(mark)));
      expect(Math.abs(((await tab.boundingBox())?.y ?? 0) - (before ?? 0))).toBeLessThan(2);
    }
    expect(await desktop.faults()).toEqual([]);
  });

  test.each([
    ["automation_not_found", "Errors › Codes", "errors-codes"],
    ["rotate a key", "Authentication › Rotating a key", "authentication-rotating-a-key"],
    ["quota", "Quota", "quota"],
    ["backdated", "Keep a copy in sync", "sync"],
    ["timingSafeEqual", "Example receivers › Node", "receivers-node"],
    ["disabled_at", "If your server was down", "outage-if-the-subscription-was-disabled"],
    ["subscrib to evnts", "Subscribe to events", "createWebhook"],
    ["next_cursor", "Pagination", "pagination"],
  ])("finds %j", async (words, title, id) => {
    const { page } = desktop;
    await page.keyboard.press(words === "quota" ? "Control+k" : "/");
    const search = page.getByRole("combobox", { name: "Search" });
    await search.fill(words);
    const options = page.getByRole("listbox", { name: "Found" }).getByRole("option");
    const titles = await options.locator("strong").allTextContents();
    const place = titles.findIndex((found) => found.startsWith(title));
    expect(place, titles.join()).toBeGreaterThanOrEqual(0);
    expect(place, titles.join()).toBeLessThan(4);
    for (let i = 0; i < place; i++) await search.press("ArrowDown");
    await search.press("Enter");
    await page.waitForURL(`**/docs#${id}`);
    await page.getByRole("dialog").waitFor({ state: "hidden" });
    const top = await page.evaluate(`document.getElementById("${id}").getBoundingClientRect().top`);
    expect(top).toBeLessThan(300);
  });

  test("has no link to a place that does not exist, and opens the alternative that one leads to", async () => {
    const { page } = desktop;
    const broken = await page.evaluate<string[]>(
      `[...document.querySelectorAll('a[href^="#"]')].map(({ hash }) => hash.slice(1)).filter((id) => !document.getElementById(id))`,
    );
    expect(broken).toEqual([]);
    const code = page.locator("#client-copy-ts pre");
    expect(await code.isVisible()).toBe(false);
    await page.getByRole("link", { name: "copy.ts" }).first().click();
    await code.waitFor();
  });

  test("says that it finds nothing, and lets the search be left", async () => {
    const { page } = desktop;
    await page.getByRole("button", { name: "Search" }).click();
    await page.getByRole("combobox", { name: "Search" }).fill("zzzzqqqq");
    await page.getByText("Nothing found.").waitFor();
    await page.keyboard.press("Escape");
    await page.getByRole("dialog").waitFor({ state: "hidden" });
  });

  test("asks before it deletes, and deletes only if told so", async () => {
    const { page } = desktop;
    await page.getByLabel("API key").fill(apiKey);
    const subscribe = page.getByRole("article", { name: "Subscribe to events" });
    await subscribe.getByText("Try it").click();
    await subscribe.getByText("On this machine, http").waitFor();
    await subscribe.getByRole("button", { name: "Send request" }).click();
    await subscribe.getByText("Replace “…” in the body first.").waitFor();
    const body = subscribe.getByLabel("Body");
    await body.fill((await body.inputValue()).replace("https://…", "https://10.0.0.1/hook"));
    await subscribe.getByRole("button", { name: "Send request" }).click();
    await subscribe.locator(".result .hljs-attr").first().waitFor();
    const { id } = JSON.parse(await subscribe.locator(".result pre").innerText());

    const remove = page.getByRole("article", { name: "Remove a subscription" });
    await remove.getByText("Try it").click();
    await remove.getByLabel("id").fill(id);
    const asked: string[] = [];
    for (const answer of ["dismiss", "accept"] as const) {
      page.once("dialog", (dialog) => {
        asked.push(dialog.message());
        return dialog[answer]();
      });
      await remove.getByRole("button", { name: "Send request" }).click();
      if (answer === "dismiss") expect(await remove.locator(".result").innerText()).toBe("");
      else await remove.locator(".result").getByText("204").waitFor();
    }
    expect(asked).toEqual(Array(2).fill(`DELETE /v1/webhooks/${id}: this cannot be undone.`));
    expect(await desktop.faults()).toEqual([]);
  });

  test("sends a header of the form as a header", async () => {
    const { page } = desktop;
    const subscribe = page.getByRole("article", { name: "Subscribe to events" });
    const body = subscribe.getByLabel("Body");
    await subscribe.getByLabel("Idempotency-Key").fill("twice");
    const ids: string[] = [];
    for (const _ of [1, 2]) {
      const answered = page.waitForResponse((response) => response.url().endsWith("/v1/webhooks"));
      await subscribe.getByRole("button", { name: "Send request" }).click();
      ids.push((await (await answered).json()).id);
    }
    expect(await body.inputValue()).toContain("10.0.0.1");
    expect(ids[0]).toMatch(/^whk_/);
    expect(ids[1]).toBe(ids[0]);
  });

  test("has a receiver for eight platforms, showing one at a time", async () => {
    const { page } = desktop;
    const section = page.getByRole("region", { name: "Example receivers" });
    for (const [name, code] of [
      ["Node", "node:http"],
      ["Workers", "export default"],
      ["Python", "import hmac"],
      ["PHP", "<?php"],
      ["Go", "package main"],
      ["Ruby", 'require "webrick"'],
      ["Stripe library", "stripe"],
      ["Standard Webhooks", "standardwebhooks"],
    ] as const) {
      await section.locator("summary", { hasText: name }).click();
      expect(await section.locator("pre:visible").allTextContents()).toEqual([
        expect.stringContaining(code),
      ]);
    }
  });

  test("sends a request with the key that is entered, and shows the data", async () => {
    await expectData(desktop.page, apiKey, automationId);
    expect(await desktop.faults()).toEqual([]);
  });

  test("fits a phone: nothing scrolls sideways, and a request can be made", async () => {
    const { page, faults } = phone;
    await readThrough(page);
    expect(await widthOf(page)).toBe(PHONE_WIDTH);
    await expectData(page, apiKey, automationId);
    expect(await widthOf(page)).toBe(PHONE_WIDTH);
    expect(await faults()).toEqual([]);
  });

  test.each(["light", "dark"] as const)(
    "has no fault that axe finds, including contrast, folded or not, in %s",
    { timeout: 240_000 },
    async (colorScheme) => {
      for (const width of [1440, PHONE_WIDTH]) {
        const viewport = { width, height: 900 };
        const page = await browser.newPage({ viewport, colorScheme, bypassCSP: true });
        await page.goto(new URL("/docs", runtime.url).href, { waitUntil: "networkidle" });
        for (const open of [false, true]) {
          await page.evaluate(
            `for (const fold of document.querySelectorAll("main details")) fold.open = ${open}`,
          );
          expect(await violationsIn(page)).toEqual([]);
        }
        await page.getByRole("button", { name: "Search" }).click();
        await page.getByRole("combobox", { name: "Search" }).fill("webhook");
        await page.getByRole("option").first().waitFor();
        expect(await violationsIn(page)).toEqual([]);
        await page.close();
      }
    },
  );

  test("can be used without a mouse, with the focus always visible", async () => {
    const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
    await page.goto(new URL("/docs", runtime.url).href);
    await page.keyboard.press("Tab");
    expect(await page.evaluate("document.activeElement.textContent")).toBe("Skip to the content");
    for (let i = 0; i < 40; i++) {
      const outline = await page.evaluate(
        "getComputedStyle(document.activeElement).outlineStyle + document.activeElement.tagName",
      );
      expect(outline).toMatch(/^solid/);
      await page.keyboard.press("Tab");
    }
    await page.close();
  });

  test("forgets the key when the page is left", async () => {
    const { page } = desktop;
    await page.reload();
    expect(await page.getByLabel("API key").inputValue()).toBe("");
    const kept = await page.evaluate("JSON.stringify([localStorage, sessionStorage])");
    expect(kept).not.toContain(apiKey);
  });

  test("shows everything but the forms without scripts", async () => {
    const page = await browser.newPage({ javaScriptEnabled: false });
    await page.goto(new URL("/docs", runtime.url).href);
    expect(await page.getByRole("article").count()).toBe(12);
    await page.close();
  });

  test("runs no script from another host, and no inline script", async () => {
    const { page, faults } = phone;
    for (const script of ["{ src: 'https://cdn.example/x.js' }", "{ text: 'void 0' }"])
      await page.evaluate(
        `document.head.append(Object.assign(document.createElement("script"), ${script}))`,
      );
    await expect.poll(async () => (await faults()).join()).toMatch(/cdn\.example.*inline/);
  });
});

async function visit(browser: Browser, base: URL, device: BrowserContextOptions): Promise<Visit> {
  const opened = await openPage(browser, base, device);
  const answer = await opened.page.goto(new URL("/docs", base).href, { waitUntil: "networkidle" });
  expect(answer?.status()).toBe(200);
  return opened;
}

/** Sends the first request of the page with `apiKey`, and finds `text` in the response. */
async function expectData(page: Page, apiKey: string, text: string): Promise<void> {
  await page.getByLabel("API key").fill(apiKey);
  const operation = page.getByRole("article", { name: "List the automations of the workspace" });
  await operation.getByText("Try it").click();
  await operation.getByRole("button", { name: "Send request" }).click();
  const result = operation.locator(".result");
  await result.getByText("200").waitFor();
  await result.getByText(text).waitFor();
  // Highlighted, and still text.
  expect(await result.innerText()).toContain("Garage <b>du</b> Parc");
  expect(await result.locator(".hljs-string").count()).toBeGreaterThan(0);
  expect(await result.innerText()).toMatch(/X-Request-Id [0-9a-f-]{36}/);
}

/** Scrolls to the end. */
async function readThrough(page: Page): Promise<void> {
  await page.evaluate(`(async () => {
    for (let before = -1; before !== scrollY; ) {
      before = scrollY;
      scrollBy({ top: innerHeight, behavior: "instant" });
      await new Promise(requestAnimationFrame);
    }
  })()`);
}

type OpenApiDocument = Record<
  "paths" | "webhooks",
  Record<string, Record<string, { summary: string }>>
>;

function operationsOf({ paths, webhooks }: OpenApiDocument) {
  const list = (of: OpenApiDocument["paths"], isEvent: boolean) =>
    Object.entries(of).flatMap(([path, methods]) =>
      Object.values(methods).map(({ summary }) => ({ summary, path, isEvent })),
    );
  return [...list(paths, false), ...list(webhooks, true)];
}
