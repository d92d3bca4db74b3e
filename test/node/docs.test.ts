import { createHmac } from "node:crypto";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { expect, test } from "vitest";
import { ROOT } from "../../scripts/shared/checkout.ts";
import { buildSite } from "../../site/build.ts";
import { Document } from "../../site/openapi.ts";
import { ORIGIN } from "../../site/origin.ts";
import { makeSearch } from "../../site/page/ranking.ts";
import { exampleRequest } from "../../site/requests.ts";
import type { Entry } from "../../site/search.ts";
import { WebhookEvent } from "../../src/contract/enumerations.ts";
import { ERRORS, type ErrorCode, helpFor, REASONS } from "../../src/contract/errors.ts";
import { RETRY_WAITS_SECONDS } from "../../src/contract/limits.ts";
import { operationsOf } from "../support/document.ts";
import { EXAMPLES } from "./support/examples.ts";

const site = await buildSite(ROOT);
const textOf = (path: string) => site.get(path)?.toString() ?? "";
const pages = [...site.keys()].filter((path) => path.endsWith(".html"));
const twins = [...site.keys()].filter(
  (path) => /^docs\/.*\.md$/.test(path) && !path.startsWith("docs/client/"),
);
const entries: Entry[] = JSON.parse(textOf("docs/search.json"));

const contentsOf = (html: string) => /<nav class="contents".*?>(.*?)<\/nav>/s.exec(html)?.[1] ?? "";
/** The paths of all pages, in reading order. */
const order = [...contentsOf(textOf("docs.html")).matchAll(/<li><a href="([^"#]+)"/g)].map(
  ([, path = ""]) => path,
);

/** What the Worker serves beside the files of the site. */
const ELSEWHERE = ["/mcp", "/docs/check-receiver.mjs"];

/** Every text that may name a page: the documents, and what the service, its tools and its portal say. */
const texts: Record<string, string> = Object.fromEntries([
  ...["docs.md", "llms.txt", "openapi.json", "docs/client/README.md"].map((path) => [
    path,
    textOf(path),
  ]),
  ...["README.md", "docs", "src", "scripts", "site/portal", "examples"].flatMap(sourcesIn),
]);

function sourcesIn(place: string): [string, string][] {
  const files = place.endsWith(".md")
    ? [place]
    : readdirSync(join(ROOT, place), { recursive: true, encoding: "utf8" }).map((file) =>
        join(place, file),
      );
  return files
    .filter((file) => /\.(md|tsx?)$/.test(file))
    .map((file) => [file, readFileSync(join(ROOT, file), "utf8")]);
}

test.each(pages)("%s links only to what is served, and to anchors that exist", (path) => {
  const links = [...textOf(path).matchAll(/(?:href|src)="([^"]+)"/g)].map(([, url = ""]) => url);
  expect(links.length).toBeGreaterThan(40);
  const external =
    /^(mailto:\{\{SUPPORT_EMAIL\}\}|\{\{SUPPORT_URL\}\}|https:\/\/www\.standardwebhooks\.com)$/;
  const inside = links.filter((link) => !external.test(link));
  expect(inside.filter((link) => !leadsSomewhere(link, path))).toEqual([]);
});

test("The contents have each guide, each part of the reference and the changes, in reading order", () => {
  const paths = order.filter((path) => !path.startsWith("/docs/guides/"));
  expect(order.slice(0, 2)).toEqual(["/docs", "/docs/guides/concepts"]);
  expect(paths).toEqual([
    ...["/docs", "/docs/reference", "/docs/reference/automations", "/docs/reference/leads"],
    ...["/docs/reference/runs", "/docs/reference/webhooks", "/docs/changelog"],
  ]);
});

test.each(order)(
  "%s has one heading, is the current page, and has nothing that the policy blocks",
  (path) => {
    const html = textOf(`${path.slice(1)}.html`);
    expect(html.match(/<h1[ >]/g)).toHaveLength(1);
    const current = [...contentsOf(html).matchAll(/<a href="([^"]+)" aria-current="page"/g)];
    expect(current.map(([, href]) => href)).toEqual([path]);
    expect(html).not.toMatch(/<style|<script(?! [^>]*src=)|<[a-z][^>]* (style|on[a-z]+)="/);
  },
);

test.each([
  ["concepts", "How the concepts are related"],
  ["webhooks", "How an event reaches your server"],
])("the guide %s has the picture %j, for wide and narrow screens", (name, picture) => {
  const html = textOf(`docs/guides/${name}.html`);
  const named = html.matchAll(/<svg class="flow[^>]* role="img" aria-label(ledby)?="([^"]+)"/g);
  const titles = [...named].map(([, isElement, given = ""]) => {
    const [id] = given.split(" ");
    return isElement ? new RegExp(`<title id="${id}">(.*?)<`).exec(html)?.[1] : given;
  });
  expect(titles).toEqual([picture, picture]);
});

test("each page leads to the next one of the contents, and back", () => {
  expect(order.length).toBe(pages.length - 1);
  for (const [place, path] of order.entries()) {
    const text = textOf(`${path.slice(1)}.html`);
    const linked = (rel: string) => new RegExp(`<a rel="${rel}" href="([^"]+)"`).exec(text)?.[1];
    expect([linked("prev"), linked("next")], path).toEqual([order[place - 1], order[place + 1]]);
  }
});

const openapi = JSON.parse(textOf("openapi.json"));
const documented = new Document(openapi).groups.flatMap(({ entries }) => entries);

test("the reference has every operation and event type of the document", () => {
  const operations = [...operationsOf(openapi), ...operationsOf(openapi, "webhooks")];
  expect(operations.length).toBeGreaterThan(WebhookEvent.options.length);
  expect(documented.map(({ operation }) => operation.operationId).toSorted()).toEqual(
    operations.map(({ operationId }) => operationId).toSorted(),
  );
  const events = documented.filter(({ method }) => method === "EVENT");
  expect(events.map(({ path }) => path)).toEqual(WebhookEvent.options);
});

test.each(documented.map((entry) => [entry.operation.summary, entry] as const))(
  "the contents lead to %j, with its path, a form unless it is an event, and its success response before its errors",
  (summary, { operation: { operationId }, path, method }) => {
    const link = new RegExp(`<a href="/(docs/reference/\\w+)#${operationId}">${summary}<`);
    const [, page] = link.exec(contentsOf(textOf("docs.html"))) ?? expect.unreachable("no link");
    const [article] =
      new RegExp(`<article [^>]*id="${operationId}".*?</article>`, "s").exec(
        textOf(`${page}.html`),
      ) ?? expect.unreachable("no article");
    const isEvent = method === "EVENT";
    expect(article.split('<details class="try"')).toHaveLength(isEvent ? 1 : 2);
    const text = article.replace(/<[^>]*>/g, "");
    expect(text).toContain(path);
    if (isEvent) expect(text).not.toMatch(/key_live|Authorization|Errors/);
    else {
      const response = text.indexOf("Response 2");
      expect(response).toBeGreaterThan(0);
      expect(text.indexOf("Errors")).toBeGreaterThan(response);
    }
  },
);

test("a tab holds one alternative, and nothing that follows the alternatives", () => {
  const tabs = pages.flatMap((path) => {
    const found = textOf(path).matchAll(/<details name="[^"]*" class="tab".*?<\/details>/gs);
    return [...found].map(([tab]) => ({ path, tab }));
  });
  expect(tabs.length).toBeGreaterThan(60);
  const wrong = tabs.filter(
    ({ tab }) => tab.split("<figure").length !== 2 || !tab.endsWith("</figure></details>"),
  );
  expect(wrong).toEqual([]);
});

test("every address of the docs in the documents, the service, its commands and its portal exists", () => {
  const named = Object.entries(texts).flatMap(([file, text]) => {
    const addresses = text.matchAll(
      /(?<![a-z.])\/(?:docs|openapi[\w.-]*\.json|llms\.txt)\b[\w./#-]*/g,
    );
    return [...addresses].map(([address]) => ({ file, address: address.replace(/[./#]+$/, "") }));
  });
  const files = new Set(named.map(({ file }) => file));
  for (const file of ["docs.md", "README.md", "site/portal/app.tsx"]) expect(files).toContain(file);
  const isFolder = (address: string) =>
    [...site.keys()].some((path) => path.startsWith(`${address.slice(1)}/`));
  expect(named.filter(({ address }) => !leadsSomewhere(address, "") && !isFolder(address))).toEqual(
    [],
  );
});

test("the documents link only to what is served", () => {
  const external =
    /^(mailto:|\{\{SUPPORT_URL\}\}|https:\/\/(www\.standardwebhooks\.com|datatracker\.ietf\.org))/;
  expect(twins.length).toBeGreaterThan(25);
  for (const path of ["docs.md", "llms.txt", ...twins]) {
    const links = [...textOf(path).matchAll(/\]\(([^)\s]+)\)/g)].map(([, url = ""]) => url);
    const inside = links.filter((url) => !external.test(url));
    if (!path.includes("/")) expect(inside.length, path).toBeGreaterThan(20);
    for (const url of inside) {
      expect(url.startsWith(`${ORIGIN}/`), `${path}: ${url}`).toBe(true);
      expect(leadsSomewhere(url.slice(ORIGIN.length), ""), `${path}: ${url}`).toBe(true);
    }
  }
});

test("the search leads only to places that exist, each of them named once, in plain text", () => {
  const urls = entries.map(({ url }) => url);
  expect(new Set(urls).size).toBe(urls.length);
  expect(urls.filter((url) => !leadsSomewhere(url, ""))).toEqual([]);
  expect(textOf("docs/search.json").match(/&[#\w]+;|<\/\w+>/g)).toBeNull();
});

const search = makeSearch(entries);

test.each([
  [
    "rotate a key",
    "API keys and security › Rotating a key",
    "/docs/guides/authentication#rotating-a-key",
  ],
  [
    "rotate secret",
    "Verify signatures › Rotating a secret",
    "/docs/guides/signatures#rotating-a-secret",
  ],
  [
    "lost secret",
    "Verify signatures › Rotating a secret",
    "/docs/guides/signatures#rotating-a-secret",
  ],
  ["rate limit", "Rate limits", "/docs/guides/rate-limits"],
  ["429", "Rate limits › Avoiding 429", "/docs/guides/rate-limits#avoiding-429"],
  ["postgres", "Keep a copy in sync › Postgres", "/docs/guides/sync#postgres"],
  [
    "firewall",
    "URLs, IP addresses and custom headers › IP addresses and firewalls",
    "/docs/guides/network#ip-addresses-and-firewalls",
  ],
  [
    "signature errors",
    "Verify signatures › Fix signature verification errors",
    "/docs/guides/signatures#fix-signature-verification-errors",
  ],
  ["which status to return", "Which status to return", "/docs/guides/statuses"],
  [
    "last attempt",
    "Retries, failures and recovery › After the last attempt",
    "/docs/guides/retries#after-the-last-attempt",
  ],
  [
    "retry schedule",
    "Retries, failures and recovery › The retry schedule",
    "/docs/guides/retries#the-retry-schedule",
  ],
  [
    "deduplicate",
    "Process events reliably › Deduplicate by id",
    "/docs/guides/processing#deduplicate-by-id",
  ],
  ["gdpr", "Personal data", "/docs/guides/personal-data"],
  ["rgpd", "Personal data", "/docs/guides/personal-data"],
  ["sandbox", "Local development", "/docs/guides/local"],
  ["backdated", "Keep a copy in sync", "/docs/guides/sync#do-not-stop-at-the-newest-record"],
  [
    "timingSafeEqual",
    "Client and code generators › webhooks.ts",
    "/docs/guides/client#webhooks-ts",
  ],
  ["subscrib to evnts", "Subscribe to events", "/docs/reference/webhooks#createWebhook"],
  ["next_cursor", "Pagination and filters", "/docs/guides/pagination"],
])("the search finds %j first in %j", (words, title, url) => {
  const found = search(words);
  expect(found[0], found.map(({ title }) => title).join()).toMatchObject({ id: url });
  expect(found[0]?.title).toMatch(new RegExp(`^${title}`));
});

test.each([
  ["errors-codes", "/docs/guides/errors#codes"],
  ["listAutomations", "/docs/reference/automations#listAutomations"],
])("the section %s of the former single page is now at %s", (former, url) => {
  expect(entries.filter((entry) => entry.former === former).map((entry) => entry.url)).toEqual([
    url,
  ]);
});

test("the search finds nothing for words that no page has", () => {
  expect(search("zzzzqqqq")).toEqual([]);
});

test("The docs as text have every operation, event, schema, code and reason, without a gap", () => {
  const text = textOf("docs.md");
  const sectionOf = (title: string) => {
    expect(text).toContain(`\n### ${title}\n`);
    return text.split(`\n### ${title}\n`)[1]?.split("\n### ")[0];
  };
  const { paths, webhooks } = JSON.parse(textOf("openapi.json"));
  for (const [path, methods] of Object.entries<object>(paths))
    for (const method of Object.keys(methods)) sectionOf(`${method.toUpperCase()} ${path}`);
  for (const type of Object.keys(webhooks)) sectionOf(`Event ${type}`);
  for (const schema of ["Automation", "Lead", "Run", "Webhook", "RunStatus"]) sectionOf(schema);
  for (const code of Object.keys(ERRORS)) expect(sectionOf("ErrorCode")).toContain(`\`${code}\``);
  for (const reason of Object.keys(REASONS))
    expect(sectionOf("ErrorReason")).toContain(`\`${reason}\``);
  expect(sectionOf("Error")).toContain("- `reason` (string, `ErrorReason`, optional)");
  expect(sectionOf("GET /v1/automations/{id}/runs")).toMatch(
    /- `id` \(in the path, required\): .*\n- `limit` \(in the query, optional, 1 to 100, default 25\): /,
  );
  expect(sectionOf("POST /v1/webhooks")).toContain(
    "- `Idempotency-Key` (header, optional, 1 to 255 characters): ",
  );
  expect(text.replace(/```ts\n[^`]*(`[^`]+)*?```/g, "")).not.toMatch(/undefined|\[object/);
});

test("the signature of the test vector covers bytes that no serialiser of JavaScript, Python or PHP writes", () => {
  const [, vector = ""] = textOf("docs.md").split("\n### Test vector\n");
  const [, body = ""] = /```json\n([^\n]*)\n```/.exec(vector) ?? [];
  const [, time = "", signature] = /t=(\d+),v1=([0-9a-f]{64})/.exec(vector) ?? [];
  const [secret = ""] = /whsec_[\w+/]+=/.exec(vector) ?? [];
  const sign = (text: string) =>
    createHmac("sha256", secret).update(`${time}.${text}`).digest("hex");
  expect(sign(body)).toBe(signature);
  expect(sign(JSON.stringify(JSON.parse(body)))).not.toBe(signature);
  // Whatever a serialiser keeps as it was, it changes something else.
  for (const part of ['{ "id" : "evt_', "\\/", "\\u00e9", "32.50", "🏡", "\u2028"])
    expect(body).toContain(part);
});

test("the schedule in the docs has every attempt, and the time since the first one", () => {
  const [, page = ""] = textOf("docs/guides/retries.md").split("## The retry schedule");
  const rows = [...page.matchAll(/^\| (\d+) \| (.*) \| (.*) \|$/gm)].map(([, n, , at]) => [n, at]);
  expect(rows).toHaveLength(RETRY_WAITS_SECONDS.length + 1);
  const last = RETRY_WAITS_SECONDS.reduce((sum, seconds) => sum + seconds, 0);
  const [days, hours] = [Math.floor(last / 86_400), Math.floor((last % 86_400) / 3_600)];
  expect(rows.at(-1)).toEqual([String(rows.length), `${days}\u00a0d ${hours}\u00a0h`]);
});

test("the example of a request has no optional filter, which would hide items of the example page", () => {
  const colour = { name: "colour", in: "query", example: "blue", schema: { type: "string" } };
  const limit = { name: "limit", in: "query", example: 25, schema: { default: 25 } };
  const urlWith = (parameters: object[]) =>
    exampleRequest("", { method: "GET", path: "/v1/leads", operation: { parameters } }).url;
  expect(urlWith([limit, colour])).toBe("/v1/leads?limit=25");
  expect(urlWith([{ ...colour, required: true }])).toBe("/v1/leads?colour=blue");
});

test("every error code has a section in the guide, whose address the responses name", () => {
  for (const code of Object.keys(ERRORS))
    expect(leadsSomewhere(helpFor(code as ErrorCode), ""), code).toBe(true);
});

test("each page has its Markdown twin, and is in the sitemap", () => {
  const addresses = pages
    .filter((path) => path !== "docs/404.html")
    .map((path) => path.replace(/\.html$/, ""));
  expect(twins.toSorted()).toEqual(
    addresses.map((path) => (path === "docs" ? "docs/index.md" : `${path}.md`)).toSorted(),
  );
  const listed = [...textOf("sitemap.xml").matchAll(/<loc>(.*?)<\/loc>/g)].map(([, url]) => url);
  expect(listed.toSorted()).toEqual(addresses.map((path) => `${ORIGIN}/${path}`).toSorted());
  for (const path of twins) expect(textOf(path), path).toMatch(/^# \S/);
});

test("the docs show every receiver as it is", () => {
  const files = readdirSync(EXAMPLES).filter((file) => !/^\.|\.(toml|md)$/.test(file));
  expect(files).toHaveLength(9);
  for (const file of files)
    expect(textOf("docs.md")).toContain(readFileSync(join(EXAMPLES, file), "utf8").trim());
});

test("the SQL of the guide keeps the later state", () => {
  const guide = readFileSync(join(ROOT, "site/guides/sync.md"), "utf8");
  const [, sql = ""] = /### SQLite\n\n```sql\n(.*?)```/s.exec(guide) ?? [];
  const database = new DatabaseSync(":memory:");
  const statements = sql
    .replace(/^--.*$/gm, "")
    .split(";")
    .map((statement) => statement.trim());
  for (const statement of statements.filter((one) => one.startsWith("CREATE")))
    database.exec(statement);
  const put = (table: string, id: string, now: string, data: object = {}) =>
    database
      .prepare(String(statements.find((one) => one.startsWith(`INSERT INTO ${table} `))))
      .run({ id, data: JSON.stringify({ id, ...data }), now });
  const state = (status: string, updated_at: string) => ({ status, updated_at });
  const at = (minute: number) =>
    new Date(Date.UTC(2026, 10, 25, 10) + minute * 60_000).toISOString();

  for (const id of ["listed", "erased", "repeated"]) put("leads", id, at(-0.01));
  put("automations", "gone", at(-0.01), state("active", at(0)));
  put("automations", "changed", at(0), state("active", at(0)));
  // An event arrives half a minute before the pass begins, whose pages lag behind it.
  put("leads", "just announced", at(0.5));
  // The pass begins at 1; an event arrives while it goes on, and a page that is older than it.
  put("leads", "listed", at(2), { status: "with a new field" });
  put("leads", "repeated", at(2));
  put("leads", "announced", at(3));
  put("automations", "changed", at(3), state("paused", at(3)));
  put("automations", "changed", at(4), state("active", at(2)));
  for (const statement of statements.filter((one) => one.startsWith("DELETE")))
    database.prepare(statement).run({ pass_began: at(1) });

  const left = (table: string) =>
    database.prepare(`SELECT id, data ->> 'status' AS status FROM ${table} ORDER BY id`).all();
  expect(left("leads").map(({ id }) => id)).toEqual([
    "announced",
    "just announced",
    "listed",
    "repeated",
  ]);
  expect(left("leads").find(({ id }) => id === "listed")?.status).toBe("with a new field");
  expect(left("automations").map((row) => ({ ...row }))).toEqual([
    { id: "changed", status: "paused" },
  ]);
});

/** Whether an address in the page `from` leads to a file, and its anchor to an element. */
function leadsSomewhere(address: string, from: string): boolean {
  const [path = "", anchor] = address.split("#");
  if (ELSEWHERE.includes(path)) return true;
  const file = path === "" ? from : path.slice(1);
  const page = [`${file}.html`, file].find((one) => site.has(one));
  if (!page) return false;
  return anchor === undefined || idsOf(page).includes(anchor);
}

function idsOf(page: string): string[] {
  const ids = [...textOf(page).matchAll(/\sid="([^"]+)"/g)].map(([, id = ""]) => id);
  expect(new Set(ids).size, `${page}: ${ids.toSorted()}`).toBe(ids.length);
  return ids;
}
