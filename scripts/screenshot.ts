/**
 * Draws the picture of the docs page that the README shows.
 *
 *     node scripts/screenshot.ts docs/docs-page.png
 */
import { chromium } from "playwright-core";
import { findChromium } from "./shared/chromium.ts";
import { buildWorker, startRuntime } from "./shared/runtime.ts";

const [file] = process.argv.slice(2);
if (!file) throw new Error("name the file to write");
const executablePath = findChromium();
if (!executablePath) throw new Error("no Chromium found: install it, or set CHROMIUM");

/** The address that the picture shows, wherever the page comes from. */
const SHOWN = new URL("http://localhost:8787");

buildWorker();
await using stack = new AsyncDisposableStack();
const runtime = await startRuntime();
stack.defer(() => runtime.stop());
const browser = await chromium.launch({ executablePath });
stack.defer(() => browser.close());
const page = await browser.newPage({
  viewport: { width: 1360, height: 800 },
  deviceScaleFactor: 1.25,
});
await page.route(`${SHOWN.origin}/**`, async (route) => {
  const { pathname } = new URL(route.request().url());
  const response = await route.fetch({ url: new URL(pathname, runtime.url).href });
  const body = (await response.text()).replaceAll(runtime.url.origin, SHOWN.origin);
  await route.fulfill({ response, body });
});
await page.goto(new URL("/docs", SHOWN).href, { waitUntil: "networkidle" });
await page.getByRole("navigation", { name: "Contents" }).getByText("Pause or activate").click();
// The contents follow, smoothly.
await page.waitForTimeout(1_500);
await page.screenshot({ path: file });
