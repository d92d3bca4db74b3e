/**
 * Takes the screenshots of the docs and of the portal for the documentation.
 *
 *     npm run screenshots               # all of them
 *     npm run screenshots -- portal     # those whose name contains a word
 */
import { join } from "node:path";
import { type Browser, chromium, type Page } from "playwright-core";
import { WebhookEvent } from "../src/contract/enumerations.ts";
import { findChromium } from "../test/node/support/chromium.ts";
import { openPortalSession } from "../test/node/support/portal-session.ts";
import { type Answer, startReceiver } from "../test/node/support/receiver.ts";
import { until } from "../test/support/until.ts";
import { ROOT } from "./shared/checkout.ts";
import { buildWorker, type Runtime, startRuntime } from "./shared/runtime.ts";

/** The base URL that the screenshots show, wherever the pages come from. */
const SHOWN = "http://localhost:8787";
const SHOWN_RECEIVER = "https://hooks.groupe-horizon.example";

interface Picture {
  /** The file, in the documentation folder. */
  file: string;
  viewport: { width: number; height: number };
  scale: number;
  /** Prepares the page for the screenshot. */
  show(page: Page): Promise<void>;
}

const PICTURES: Picture[] = [
  { file: "docs-page.png", viewport: { width: 1440, height: 900 }, scale: 1, show: showDocs },
  { file: "portal.png", viewport: { width: 1200, height: 1010 }, scale: 1.25, show: showPortal },
];

const executablePath = findChromium();
if (!executablePath) throw new Error("no Chromium found: install it, or set CHROMIUM");
const [word = ""] = process.argv.slice(2);
buildWorker();
await using stack = new AsyncDisposableStack();
const runtime = await startRuntime({ assets: true });
stack.defer(() => runtime.stop());
let answer: Answer = 200;
const receiver = await startReceiver(() => answer);
stack.defer(() => receiver.close());
const browser = await chromium.launch({ executablePath });
stack.defer(() => browser.close());
for (const picture of PICTURES.filter(({ file }) => file.includes(word)))
  await draw(browser, picture);

async function draw(browser: Browser, picture: Picture): Promise<void> {
  const { viewport, scale: deviceScaleFactor } = picture;
  const page = await browser.newPage({ viewport, deviceScaleFactor, locale: "en-GB" });
  page.setDefaultTimeout(120_000);
  await page.route(`${SHOWN}/**`, async (route) => {
    const { pathname, search } = new URL(route.request().url());
    const response = await route.fetch({ url: new URL(pathname + search, runtime.url).href });
    const body = (await response.text())
      .replaceAll(runtime.url.origin, SHOWN)
      .replaceAll(receiver.url, SHOWN_RECEIVER);
    await route.fulfill({ response, body });
  });
  await picture.show(page);
  await page.screenshot({ path: join(ROOT, "docs", picture.file) });
  await page.close();
}

async function showDocs(page: Page): Promise<void> {
  await page.goto(`${SHOWN}/docs`, { waitUntil: "networkidle" });
  const contents = page.getByRole("navigation", { name: "Contents" });
  await contents.getByText("Pause or activate").click();
  await page.waitForURL("**/docs/reference/automations#controlAutomation");
  // The page scrolls smoothly, which takes a while.
  await page.waitForTimeout(1_500);
}

/** Opens the page of a webhook that has begun to fail, as an administrator sees it. */
async function showPortal(page: Page): Promise<void> {
  const { hash } = await subscribeSample(runtime);
  await page.goto(`${SHOWN}/portal${hash}`);
  await page.getByRole("link", { name: "hooks.groupe-horizon" }).click();
  await page.getByText("401").first().waitFor();
  // The mouse must point at nothing, and the focus must be invisible.
  await page.mouse.move(0, 0);
  await page.waitForTimeout(500);
}

/** Creates a workspace with events, of which the last ones are rejected. @returns the link to its portal. */
async function subscribeSample({ env: { PLATFORM }, url: base }: Runtime): Promise<URL> {
  const { workspaceId } = await PLATFORM.createWorkspace({ name: "Groupe Horizon" });
  const { url } = await PLATFORM.createPortalLink({ workspaceId });
  const link = new URL(new URL(String(url)).hash, new URL("/portal", base));
  const token = await openPortalSession(link);
  await fetch(new URL("/portal/api/webhooks", base), {
    method: "POST",
    headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
    body: JSON.stringify({
      url: `${receiver.url}/automations`,
      events: WebhookEvent.options,
    }),
  });
  const agent = { reference: "parc", name: "Garage du Parc" };
  const automation = { reference: "1", type: "social_messages", provider: "instagram" } as const;
  const { ids } = await PLATFORM.recordAutomations({
    workspaceId,
    automations: [{ ...automation, agent, status: "active" as const }],
  });
  const automationId = String(ids[0]);
  for (const reference of ["1", "2", "3", "4"]) {
    if (reference === "4") {
      await until(() => receiver.posts.length === 6);
      answer = 401;
    }
    const lead = { reference, source: "social" as const, agent, name: "Camille Durand" };
    await PLATFORM.recordLeads({ workspaceId, leads: [lead] });
    const run = { automationId, status: "success", triggerType: "message" } as const;
    await PLATFORM.recordRuns({ workspaceId, runs: [{ reference, ...run }] });
  }
  return link;
}
