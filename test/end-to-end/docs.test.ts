import { type Browser, type BrowserContextOptions, chromium, type Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { findChromium } from "../../scripts/chromium.ts";
import { type Runtime, startRuntime } from "../../scripts/runtime.ts";

const PHONE_WIDTH = 390;

const executablePath = findChromium();
if (!executablePath && process.env.CI) throw new Error("no Chromium: install it, or set CHROMIUM");
if (!executablePath)
  console.warn("The docs page is not tested: no Chromium found; install it, or set CHROMIUM.");

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
    const agent = { reference: "a", name: "Garage du Parc" };
    const automation = { reference: "1", type: "lead_ads", provider: "facebook", agent } as const;
    const automations = [{ ...automation, status: "active" as const }];
    const { ids } = await PLATFORM.recordAutomations({ workspaceId, automations });
    automationId = String(ids[0]);
    browser = await chromium.launch({ executablePath: String(executablePath) });
    const { url } = runtime;
    desktop = await visit(browser, url, { viewport: { width: 1280, height: 900 } });
    const viewport = { width: PHONE_WIDTH, height: 844 };
    phone = await visit(browser, url, { viewport, isMobile: true, hasTouch: true });
  });

  afterAll(async () => {
    await browser?.close();
    await runtime?.stop();
  });

  test("opens without an error, a breach of its policy or a request to another host", async () => {
    const { page, faults } = desktop;
    await page.getByRole("heading", { name: "Public API" }).waitFor();
    await page.getByRole("button", { name: "Open Search" }).click();
    await page.keyboard.type("leads");
    await page.getByRole("option", { name: /List the leads/ }).waitFor();
    await page.keyboard.press("Escape");
    await readThrough(page);
    expect(await faults()).toEqual([]);
    // Nor does anything lead to the maker of the renderer.
    expect(await page.locator("a[href*='scalar.com']:visible").count()).toBe(0);
  });

  test("shows every operation and event of the document", async () => {
    const { page, faults } = desktop;
    const answer = await fetch(new URL("/openapi.json", runtime.url));
    const operations = operationsOf((await answer.json()) as OpenApiDocument);
    expect(operations).toHaveLength(12);
    for (const { summary, path } of operations) {
      await page.getByRole("complementary").getByRole("link", { name: summary }).first().click();
      const section = page.getByRole("region", { name: summary });
      await section.getByRole("heading", { name: summary }).waitFor();
      await section.getByText(path).first().waitFor();
    }
    expect(await faults()).toEqual([]);
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

  test("forgets the key when it is left", async () => {
    const { page } = desktop;
    await page.reload();
    const key = page.getByPlaceholder("Token").first();
    await key.waitFor();
    expect(await key.inputValue()).toBe("");
    const kept = await page.evaluate("JSON.stringify([localStorage, sessionStorage])");
    expect(kept).not.toContain(apiKey);
  });

  test("runs no script of another host, nor one that stands in the page", async () => {
    const { page, faults } = phone;
    for (const script of ["{ src: 'https://cdn.example/x.js' }", "{ text: 'void 0' }"])
      await page.evaluate(
        `document.head.append(Object.assign(document.createElement("script"), ${script}))`,
      );
    await expect.poll(async () => (await faults()).join()).toMatch(/cdn\.example.*inline/);
  });
});

/** An open page, and all that went wrong in it so far. */
interface Visit {
  page: Page;
  faults: () => Promise<string[]>;
}

async function visit(browser: Browser, base: URL, device: BrowserContextOptions): Promise<Visit> {
  const page = await browser.newPage(device);
  page.setDefaultTimeout(20_000);
  const seen: string[] = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) seen.push(message.text());
  });
  page.on("pageerror", (error) => seen.push(String(error)));
  page.on("request", (request) => {
    const { host, protocol } = new URL(request.url());
    if (host !== base.host && protocol !== "data:") seen.push(request.url());
  });
  await page.addInitScript(`
    globalThis.breaches = [];
    document.addEventListener("securitypolicyviolation", (event) =>
      breaches.push(event.violatedDirective + " " + event.blockedURI));
  `);
  const answer = await page.goto(new URL("/docs", base).href, { waitUntil: "networkidle" });
  expect(answer?.status()).toBe(200);
  return {
    page,
    faults: async () => [...seen, ...(await page.evaluate<string[]>("breaches"))],
  };
}

/** Makes the first request of the page with `apiKey`, and finds `text` in the answer. */
async function expectData(page: Page, apiKey: string, text: string): Promise<void> {
  await page.getByPlaceholder("Token").first().fill(apiKey);
  const operation = page.getByRole("region", { name: "List the automations of the workspace" });
  await operation.getByRole("button", { name: /Test Request/ }).click();
  const form = page.getByRole("dialog");
  const send = form.getByRole("button", { name: /^Send/ }).and(page.locator(":visible"));
  await send.first().click();
  await form.getByText("200 OK").waitFor();
  await form.getByText(text).waitFor();
}

/** Scrolls to the end: what stands below is rendered when it comes into view. */
async function readThrough(page: Page): Promise<void> {
  await page.evaluate(`(async () => {
    for (let before = -1; before !== scrollY; ) {
      before = scrollY;
      scrollBy({ top: innerHeight, behavior: "instant" });
      await new Promise(requestAnimationFrame);
    }
  })()`);
}

/** How far the page reaches to the right, once it is pushed there. */
async function widthOf(page: Page): Promise<number> {
  return page.evaluate("(scrollTo({ left: 1_000, behavior: 'instant' }), scrollX + innerWidth)");
}

type OpenApiDocument = Record<
  "paths" | "webhooks",
  Record<string, Record<string, { summary: string }>>
>;

function operationsOf({ paths, webhooks }: OpenApiDocument) {
  return Object.entries({ ...paths, ...webhooks }).flatMap(([path, methods]) =>
    Object.values(methods).map(({ summary }) => ({ summary, path })),
  );
}
