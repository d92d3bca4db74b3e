import type { BrowserContextOptions, Page } from "playwright-core";
import type { WebhookEvent } from "../../../src/contract/enumerations.ts";
import { readPortalToken } from "../../../src/contract/portal-token.ts";
import { openBrowser, openPage, type Visit } from "./browser.ts";
import { shareRuntime } from "./local-runtime.ts";
import { opened } from "./opened.ts";
import { openPortalSession } from "./portal-session.ts";
import { type Answer, startReceiver } from "./receiver.ts";

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
  const runtime = await shareRuntime();
  const receiver = await opened(startReceiver(() => answer));
  const { DB, PLATFORM } = runtime.env;
  let visit: Visit | null = null;
  /** The workspace that its page shows, or has shown last. */
  let shown: string | null = null;
  const makeLink = async (workspaceId: string, options: LinkOptions = {}) => {
    const { url } = await PLATFORM.createPortalLink({ workspaceId, ...options });
    const { pathname, hash } = new URL(String(url));
    return new URL(pathname + hash, runtime.url).href;
  };
  /**
   * Opens the portal of a workspace through a link: in an empty page, or in one that shows another workspace, where the
   * reader accepts it.
   */
  const enter = async ({ page }: Visit, workspaceId: string, options?: LinkOptions) => {
    const link = await makeLink(workspaceId, options);
    if (page.url() === "about:blank") await page.goto(link);
    else {
      await page.evaluate((to) => location.assign(to), link);
      await page.getByRole("button", { name: /^Open / }).click();
      await page.waitForURL("**/portal#/webhooks");
    }
    await page.getByRole("heading", { level: 1 }).waitFor();
    // The other pages of a test are not used again.
    if (page === visit?.page) shown = workspaceId;
  };
  /** Calls the portal's API as another browser of a workspace would. */
  const post = async (
    workspaceId: string,
    path: string,
    body: object = {},
    options?: LinkOptions,
  ) => {
    const token = await openPortalSession(new URL(await makeLink(workspaceId, options)));
    const response = await fetch(new URL(`/portal/api${path}`, runtime.url), {
      method: "POST",
      headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
    if (!response.ok) throw new Error(`${path} was answered ${response.status}`);
    return response.json() as Promise<Record<string, unknown>>;
  };
  /** Creates a workspace with a key. */
  const makeWorkspace = async (name = "Groupe Horizon") => {
    const { workspaceId } = await PLATFORM.createWorkspace({ name });
    await PLATFORM.createApiKey({ workspaceId });
    return String(workspaceId);
  };
  let shared: { workspaceId: string; tests: number } | null = null;
  /** The page that the tests of a file have in turn, because another one would start a process. */
  const takePage = async () => {
    visit ??= await openPage(browser, runtime.url, { locale });
    return visit;
  };
  return {
    runtime,
    receiver,
    browser,
    /** How the subscriber's server answers from now on. */
    answerWith: (next: Answer) => {
      answer = next;
    },
    makeWorkspace,
    /**
     * A workspace that some tests in turn share, each with webhooks of its own. The portal may make 300 requests per minute
     * in each workspace, and a test makes up to 40.
     */
    shareWorkspace: async () => {
      if (shared === null || shared.tests === 6)
        shared = { workspaceId: await makeWorkspace(), tests: 0 };
      shared.tests++;
      return shared.workspaceId;
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
      const { id } = await post(workspaceId, "/webhooks", { url: receiver.url + path, events });
      return String(id);
    },
    /** Makes the deliveries of a webhook wait for hours: what is due would be sent anyway. */
    postpone: (webhookId: string) =>
      DB.prepare("UPDATE deliveries SET due_at = due_at + 18000000 WHERE subscription_id = ?")
        .bind(webhookId)
        .run(),
    /** Opens the portal of a workspace through a link, in a new page. */
    open: async (workspaceId: string, device: BrowserContextOptions = {}) => {
      const visit = await openPage(browser, runtime.url, { locale, ...device });
      await enter(visit, workspaceId);
      return visit;
    },
    takePage,
    /** The same page, empty. */
    takeEmptyPage: async () => {
      const taken = await takePage();
      if (taken.page.url() !== "about:blank") await taken.empty();
      return taken;
    },
    /**
     * Prepares the page for the next test, which gets another one if this one `isSpent`. It stays open if the test has left
     * nothing in it, because following a link there takes half the time of opening a page.
     */
    returnPage: async (isSpent = false) => {
      if (isSpent) {
        await visit?.close();
        visit = null;
        return;
      }
      if (!visit) return;
      shown = await rest(visit.page);
      await (shown === null ? visit.empty() : visit.clear());
    },
    /** Shows a place of a workspace in the page that tests have in turn. */
    show: async (visit: Visit, workspaceId: string, place: string) => {
      const { page } = visit;
      const isOpen = page.url() !== "about:blank" && shown === workspaceId;
      if (!isOpen) await enter(visit, workspaceId);
      await page.evaluate((hash) => {
        location.hash = hash;
      }, `#/${place}`);
    },
    enter,
    post,
    /** The URL of a portal link. */
    makeLink,
  };
}

/** The heading of the page. */
export const heading = (page: Page, name: string) => page.getByRole("heading", { level: 1, name });

/**
 * Brings the portal to a place that asks the server for nothing. Its session stays open.
 *
 * @returns the workspace that it shows; null if a test has left something in the page.
 */
async function rest(page: Page): Promise<string | null> {
  const token = await page.evaluate<string | null>(`(() => {
    const left = document.querySelector("dialog, .announcements p, .read-only, .closed, font");
    if (left || !document.querySelector(".bar nav")) return null;
    localStorage.clear();
    sessionStorage.removeItem("portal-draft");
    location.hash = "#/events";
    return sessionStorage.getItem("portal-session");
  })()`);
  const workspaceId = token && readPortalToken(token)?.grant.workspaceId;
  if (!workspaceId) return null;
  await heading(page, "Event types").waitFor();
  return workspaceId;
}
