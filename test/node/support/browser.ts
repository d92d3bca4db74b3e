import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import {
  type Browser,
  type BrowserContextOptions,
  chromium,
  type Locator,
  type Page,
  type Request,
} from "playwright-core";
import { beforeEach } from "vitest";
import { until } from "../../support/until.ts";
import { findChromium } from "./chromium.ts";
import { opened } from "./opened.ts";

/** The width of a phone, in CSS pixels. */
export const PHONE_WIDTH = 390;

/** Maximum time for a page on a busy machine. */
const TIMEOUT_MS = 45_000;

const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

/**
 * For a file of tests: a browser. Its tests are skipped if the machine has none.
 *
 * @throws Error in CI, where every page must be tested.
 */
export async function openBrowser(): Promise<Browser> {
  const executablePath = findChromium();
  const args = [
    // Otherwise a page starts another process each time that it comes from an empty one.
    "--renderer-process-limit=1",
    // Where no graphics card is, a process for one only takes time.
    "--disable-gpu",
    "--in-process-gpu",
  ];
  if (executablePath) return opened(chromium.launch({ executablePath, args }));
  if (process.env.CI) throw new Error("no Chromium: install it, or set CHROMIUM");
  beforeEach((t) => t.skip("no Chromium found: install it, or set CHROMIUM"));
  return null as never;
}

/** An open page, and everything that goes wrong in it. */
export interface Visit {
  page: Page;
  /** Console errors and warnings, policy violations, requests to other hosts: those since the last call. */
  faults(): Promise<string[]>;
  /** Takes back what a test has set up around the page, and forgets what went wrong. */
  clear(): Promise<void>;
  /** Makes the page as if it had just been opened, but for its history. A new page would start two processes. */
  empty(): Promise<void>;
  close(): Promise<void>;
}

/** Opens an empty page that may only contact the host of `base`. */
export async function openPage(
  browser: Browser,
  base: URL,
  device: BrowserContextOptions = {},
): Promise<Visit> {
  // What moves is painted sixty times a second, and may take a busy machine as long as a test waits.
  const context = await browser.newContext({ reducedMotion: "reduce", ...device });
  const page = await context.newPage();
  const size = page.viewportSize();
  page.setDefaultTimeout(TIMEOUT_MS);
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
  /** The requests that have no response yet. */
  const open = new Set<Request>();
  page.on("request", (request) => open.add(request));
  page.on("requestfinished", (request) => open.delete(request));
  page.on("requestfailed", (request) => open.delete(request));
  const clear = async () => {
    for (const other of context.pages()) if (other !== page) await other.close();
    await page.unrouteAll({ behavior: "ignoreErrors" });
    page.removeAllListeners("dialog");
    await until(() => open.size === 0);
    await context.clearCookies();
    await context.clearPermissions();
    await page.emulateMedia({ media: null, colorScheme: null });
    if (size) await resize(page, size.width, size.height);
    seen.length = 0;
  };
  return {
    page,
    faults: async () => [
      ...seen.splice(0),
      ...(await page.evaluate<string[]>("breaches.splice(0)")),
    ],
    clear,
    empty: async () => {
      await page.unrouteAll({ behavior: "ignoreErrors" });
      if (page.url() !== "about:blank")
        await page.evaluate("localStorage.clear(), sessionStorage.clear()");
      await page.goto("about:blank");
      open.clear();
      await clear();
    },
    close: async () => {
      // The page may just be asking again for what a test answers.
      await page.unrouteAll({ behavior: "ignoreErrors" });
      await context.close();
    },
  };
}

/** Waits until each of the texts is shown. */
export async function see(within: Page | Locator, ...texts: string[]): Promise<void> {
  for (const text of texts) await within.getByText(text).waitFor();
}

/** Gives the page another size, which it has adapted to when this ends: it is told of its size once a frame. */
export async function resize(page: Page, width: number, height: number): Promise<void> {
  await page.setViewportSize({ width, height });
  await page.evaluate("new Promise(requestAnimationFrame)");
}

/** How far the page extends to the right if scrolled there. */
export async function widthOf(page: Page): Promise<number> {
  return page.evaluate("(scrollTo({ left: 1_000, behavior: 'instant' }), scrollX + innerWidth)");
}

/**
 * What is cut off on the page: elements that reach beyond it to the left or right, unless they can be scrolled to and
 * are not the current one, and choices whose text is wider than their field.
 */
export async function cutOffIn(page: Page): Promise<string[]> {
  return page.evaluate<string[]>(`(() => {
    const isClipped = (e) => e.closest(".skip, .hidden") || (e.closest("thead") && getComputedStyle(e.closest("thead")).position === "absolute");
    const isScrolled = (e) => {
      for (let p = e.parentElement; p; p = p.parentElement)
        if (["auto", "scroll"].includes(getComputedStyle(p).overflowX)) return true;
      return false;
    };
    const isOutside = (e) => {
      const { left, right, width } = e.getBoundingClientRect();
      return width > 1 && (left < -1 || right > innerWidth + 1);
    };
    const context = document.createElement("canvas").getContext("2d");
    const isShortened = (select) => {
      const style = getComputedStyle(select);
      context.font = style.font;
      const text = context.measureText(select.selectedOptions[0]?.textContent ?? "").width;
      return text > select.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight) + 1;
    };
    const elements = document.querySelectorAll("a, button, summary, input, select, textarea, h1, h2, h3, p, li, dt, dd, th, td, label, legend, time");
    return [...elements]
      .filter((e) => e.checkVisibility() && !isClipped(e))
      .filter((e) => (isOutside(e) && (!isScrolled(e) || e.ariaCurrent)) || (e.localName === "select" && isShortened(e)))
      .map((e) => e.outerHTML.slice(0, 120));
  })()`);
}

/** The least height of what a finger taps, in CSS pixels. */
const TAPPED_MIN = 44;

/** What a finger can hardly tap: buttons, fields and links of less height, but for links in a sentence or a row. */
export async function tooSmallIn(page: Page): Promise<string[]> {
  return page.evaluate<string[]>(`(() => {
    const inSight = (e) => e.checkVisibility() && e.getBoundingClientRect().width > 1 && !e.closest(".skip");
    const tapped = (e) => (e.closest("label.check") ?? e);
    return [...document.querySelectorAll("button, .button, summary, input, select, textarea, .brand a, nav a, .crumb a, .head > a, .each a")]
      .filter((e) => inSight(e) && tapped(e).getBoundingClientRect().height < ${TAPPED_MIN})
      .map((e) => e.outerHTML.slice(0, 120));
  })()`);
}

/** The rules of axe that depend on colours. */
const COLOUR_RULES = ["color-contrast", "link-in-text-block"];

/**
 * Lists the kinds of elements on the page: their names, classes and attributes, each with the element that it is in, and
 * which heading follows which. Elements that only colour code have no structure.
 */
const KINDS = `(() => {
  const nameOf = (e) => [e.localName, ...e.classList].join(".");
  const kinds = new Set();
  let heading = "";
  for (const e of document.querySelectorAll("body, body :not(pre code *)")) {
    const attributes = [...e.attributes].map(({ name, value }) =>
      ["role", "type", "scope"].includes(name) ? name + "=" + value : name);
    const isEmpty = e.textContent.trim() === "";
    kinds.add([nameOf(e.parentElement), nameOf(e), isEmpty, ...attributes.toSorted()].join());
    if (!/^h\\d$/.test(e.localName)) continue;
    kinds.add(heading + " " + e.localName);
    heading = e.localName;
  }
  return [...kinds];
})()`;

/**
 * Whether the page has a kind of element that none had before. Only such a page is worth examining.
 *
 * @param seen the kinds of the pages before, to which those of this one are added.
 */
export async function hasNewKinds(page: Page, seen: Set<string>): Promise<boolean> {
  const kinds = await page.evaluate<string[]>(KINDS);
  const known = seen.size;
  for (const kind of kinds) seen.add(kind);
  return seen.size > known;
}

/** What axe finds wrong in the page's current state, but for its colours. */
export async function structureViolationsIn(page: Page): Promise<string[]> {
  const rules = Object.fromEntries(COLOUR_RULES.map((rule) => [rule, { enabled: false }]));
  return runAxe(page, "document", { rules });
}

/**
 * Finds one element for each look of a text: its colour, what is behind it up to the first opaque background, whether it
 * counts as large (WCAG 1.4.3), and what tells a link from the text around it.
 */
const LOOKS = `
  const styles = new Map();
  const styleOf = (e) => styles.get(e) ?? styles.set(e, getComputedStyle(e)).get(e);
  const behind = (e) => {
    const { backgroundColor: colour, backgroundImage, opacity } = styleOf(e);
    const isOpaque = !/^rgba|\\//.test(colour) && opacity === "1";
    const own = [colour, backgroundImage, opacity].join();
    // An element that paints nothing of its own looks like the one behind it.
    const isClear = own === "rgba(0, 0, 0, 0),none,1";
    const rest = isOpaque || !e.parentElement ? "" : behind(e.parentElement);
    return isClear ? rest : own + rest;
  };
  const looks = new Map();
  for (const e of document.querySelectorAll("body *")) {
    const hasText = [...e.childNodes].some(({ nodeType, data }) => nodeType === 3 && data.trim());
    if (!(hasText || e.matches("input, select, textarea")) || !e.checkVisibility()) continue;
    const { color, fontSize, fontWeight, textDecorationLine } = styleOf(e);
    const size = parseFloat(fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && fontWeight >= 700);
    const link = e.localName === "a" ? textDecorationLine + styleOf(e.parentElement).color : "";
    looks.set([color, isLarge, link, behind(e)].join(), e);
  }`;

/**
 * What axe finds wrong in the colours of the page.
 *
 * @param seen the looks of texts that were examined before, which are not examined again. Those of this page are added.
 */
export async function colourViolationsIn(page: Page, seen: Set<string>): Promise<string[]> {
  const added = await page.evaluate<string[]>(`(() => {
    ${LOOKS}
    for (const look of ${JSON.stringify([...seen])}) looks.delete(look);
    globalThis.examined = [...looks.values()];
    return [...looks.keys()];
  })()`);
  for (const look of added) seen.add(look);
  return added.length > 0 ? runAxe(page, "{ include: examined }", { runOnly: COLOUR_RULES }) : [];
}

/** Runs axe on what the expression `context` stands for in the page. */
async function runAxe(page: Page, context: string, options: object): Promise<string[]> {
  if (!(await page.evaluate("'axe' in globalThis"))) await page.evaluate(AXE);
  // Otherwise axe finds a selector for each element that is right, too.
  const quick = { resultTypes: ["violations"], selectors: false };
  return page.evaluate<string[]>(
    `axe.run(${context}, ${JSON.stringify({ ...quick, ...options })}).then(({ violations }) => violations.map(({ id, nodes }) => id + nodes[0].html))`,
  );
}
