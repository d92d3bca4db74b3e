import type { BrowserContextOptions, Page } from "playwright-core";
import { startRuntime } from "../../../scripts/shared/runtime.ts";
import type { WebhookEvent } from "../../../src/contract/enumerations.ts";
import { openBrowser, openPage, type Visit } from "./browser.ts";
import { opened } from "./opened.ts";
import { openPortalSession } from "./portal-session.ts";
import { type Answer, startReceiver } from "./receiver.ts";

/** Signs links to the portal on the stage. */
export const PORTAL_SIGNING_KEYS = "local:YGFiY2RlZmdoaWprbG1ub3BxcnN0dXZ3eHl6e3x9fn8=";

/** What the platform says about whoever opens a link. */
export interface LinkOptions {
  actor?: string;
  readOnly?: boolean;
  returnUrl?: string;
}

/**
 * For a file of tests: the built Worker, a subscriber's server and a browser.
 *
 * @param locale that of the reader's browser, where a test does not set another one.
 */
export async function setStage({ locale = "en-GB" } = {}) {
  let answer: Answer = 204;
  let leads = 0;
  const browser = await openBrowser();
  const runtime = await opened(startRuntime({ assets: true, vars: { PORTAL_SIGNING_KEYS } }));
  const receiver = await opened(startReceiver(() => answer));
  const { PLATFORM } = runtime.env;
  const makeLink = async (workspaceId: string, options: LinkOptions = {}) => {
    const { url } = await PLATFORM.createPortalLink({ workspaceId, ...options });
    const { pathname, hash } = new URL(String(url));
    return new URL(pathname + hash, runtime.url).href;
  };
  /** Opens the portal of a workspace through a link, in an empty page. */
  const enter = async ({ page }: Visit, workspaceId: string, options?: LinkOptions) => {
    await page.goto(await makeLink(workspaceId, options));
    await page.getByRole("heading", { level: 1 }).waitFor();
  };
  let visit: Visit | null = null;
  return {
    runtime,
    receiver,
    browser,
    /** How the subscriber's server answers from now on. */
    answerWith: (next: Answer) => {
      answer = next;
    },
    /** Creates a workspace with a key. */
    makeWorkspace: async (name = "Groupe Horizon") => {
      const { workspaceId } = await PLATFORM.createWorkspace({ name });
      await PLATFORM.createApiKey({ workspaceId });
      return String(workspaceId);
    },
    /** Records new leads. */
    recordLeads: async (workspaceId: string, count = 1) => {
      const items = Array.from({ length: count }, () => ({
        reference: `lead-${++leads}`,
        source: "widget" as const,
        agent: { reference: "lyon", name: "Agence Lumière Lyon" },
        name: `Zoë “${leads}” O'Hara 🌻`,
      }));
      await PLATFORM.recordLeads({ workspaceId, leads: items });
    },
    /** Subscribes the subscriber's server. @returns the id. */
    subscribe: async (
      workspaceId: string,
      events: WebhookEvent[] = ["lead.created", "run.completed"],
      path = "/in",
    ) => {
      const token = await openPortalSession(new URL(await makeLink(workspaceId)));
      const made = await fetch(new URL("/portal/api/webhooks", runtime.url), {
        method: "POST",
        headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
        body: JSON.stringify({ url: receiver.url + path, events }),
      });
      return ((await made.json()) as { id: string }).id;
    },
    /** Opens the portal of a workspace through a link, in a new page. */
    open: async (workspaceId: string, device: BrowserContextOptions = {}) => {
      const visit = await openPage(browser, runtime.url, { locale, ...device });
      await enter(visit, workspaceId);
      return visit;
    },
    /** The empty page that the tests of a file have in turn, because another one would start a process. */
    takePage: async () => {
      visit ??= await openPage(browser, runtime.url, { locale });
      return visit;
    },
    /** Empties the page for the next test, which gets another one if this one `isSpent`. */
    returnPage: async (isSpent = false) => {
      if (!isSpent) return visit?.empty();
      await visit?.close();
      visit = null;
    },
    enter,
    /** The URL of a portal link. */
    makeLink,
  };
}

/** The heading of the page. */
export const heading = (page: Page, name: string) => page.getByRole("heading", { level: 1, name });
