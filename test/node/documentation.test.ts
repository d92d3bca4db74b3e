import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, extname, join } from "node:path";
import { expect, test } from "vitest";
import { describeFigures, FIGURES } from "../../bench/figures.ts";
import { LEAD_BYTES } from "../../bench/price.ts";
import { platformReference, REFERENCE } from "../../scripts/platform/reference.ts";
import { ROOT } from "../../scripts/shared/checkout.ts";
import { DEPLOYED, FOLDER, fillParts, GUIDES, REQUESTS, variablesOf } from "../../site/guides.ts";
import { PORTAL_REQUESTS } from "../../site/parts.ts";
import { en } from "../../site/portal/texts/en.ts";
import { WebhookEvent } from "../../src/contract/enumerations.ts";
import {
  AGREED_SUBSCRIPTIONS_MAX,
  CIRCUIT_OPENS_AFTER_EVENTS,
  CIRCUIT_OUTAGE_SECONDS,
  CIRCUIT_REJECTED_SECONDS,
  DISABLE_AFTER_FAILURES,
  DISABLE_AFTER_MS,
  EMAIL_WAITS_SECONDS,
  ERASED_LEADS_KEPT_DAYS,
  HEADER_VALUE_MAX_LENGTH,
  HEADERS_MAX,
  KEY_CHANGES_PER_DAY,
  KEY_OVERLAP_MAX_SECONDS,
  NESTING_MAX,
  PAGE_LIMIT,
  PENDING_MAX,
  PORTAL_CHANGES_KEPT,
  PORTAL_LASTING_CHANGES_PER_DAY,
  PORTAL_LINK_MINUTES,
  PORTAL_LINK_OPENS_MS,
  POST_TIMEOUT_MS,
  READ_MAX_MS,
  RECORD_MAX_BYTES,
  REDELIVERIES_PER_HOUR,
  REDELIVERY_MAX_AGE_MS,
  REMINDER_WAIT_MS,
  REMINDERS_MAX,
  REMOVED_AUTOMATIONS_KEPT_DAYS,
  REPLAY_MAX_DAYS,
  RESPONSES_PER_DAY,
  RETRIED_DAYS,
  RETRY_AFTER_MAX_SECONDS,
  RETRY_JITTER,
  RETRY_WAITS_SECONDS,
  SECRET_OVERLAP_SECONDS,
  STOPS_WITHIN_MS,
  SUBSCRIPTIONS_MAX,
  TELL_AFTER_MS,
  TEST_EVENTS_PER_MINUTE,
  TRIED_FOR_MAX_MS,
  URL_MAX_LENGTH,
  WORKSPACE_EMAILS_PER_DAY,
} from "../../src/contract/limits.ts";
import { DAY_MS, HOUR_MS, MINUTE_MS } from "../../src/contract/time.ts";
import { CONCURRENCY_MAX, SLOW_RESPONSE_MS } from "../../src/delivery/policy.ts";
import { CLOUDFLARE_ERROR_READ_MS, HEADERS } from "../../src/delivery/post.ts";
import { RESPONSE_KEPT_BYTES, RESPONSE_READ_MS } from "../../src/delivery/response.ts";
import { LEASE_MS } from "../../src/dispatch/claims.ts";
import { CLAIM_VALID_MS, DISPATCH_MAX_MS } from "../../src/dispatch/deliver.ts";
import { DNS_BEFORE_POST_MS } from "../../src/endpoints/resolve.ts";
import { HARD_DELIVERIES } from "../../src/events/samples.ts";
import { OPERATIONS } from "../../src/platform/operations.ts";
import {
  DATABASE_TIMEOUT_MS,
  FULL_SHARE_MAX,
  STUCK_AFTER_MS,
  SWEPT_WITHIN_MS,
} from "../../src/service-health.ts";
import { ROTATION_MS } from "../../src/subscriptions/rotation.ts";
import { DATABASE_MAX_BYTES } from "../../src/workspaces/database-figures.ts";
import { EXAMPLES } from "./support/examples.ts";

const PAGES = ["", "docs", "examples/receivers", "bench", FOLDER].flatMap((folder) =>
  readdirSync(join(ROOT, folder))
    .filter((name) => name.endsWith(".md"))
    .map((name) => join(folder, name)),
);

const read = (page: string) => readFileSync(join(ROOT, page), "utf8");

test.each(PAGES)("%s links only to what exists", (page) => {
  const links = [...read(page).matchAll(/\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)/g)];
  const broken = links.filter(([, path, anchor]) => {
    if (path?.startsWith("mailto:")) return false;
    const target = path ? join(dirname(page), path) : page;
    if (!existsSync(join(ROOT, target))) return true;
    // The site leads to the operation; the tests of its pages check that.
    if (target === "openapi.json") return false;
    return anchor !== undefined && !anchorsOf(read(target)).includes(anchor);
  });
  expect(broken.map(([link]) => link)).toEqual([]);
});

test.each(PAGES)("%s names only npm scripts and Platform methods that exist", (page) => {
  const scripts = Object.assign(
    {},
    // The guides also describe the client, which has scripts of its own.
    ...["package.json", ...(page.startsWith(FOLDER) ? ["examples/client/package.json"] : [])].map(
      (file) => JSON.parse(read(file)).scripts,
    ),
  );
  const text = read(page);
  const named = [...text.matchAll(/npm run (?:-s |--silent )?([a-z][\w:-]*)/g)];
  expect(named.map(([, name = ""]) => name).filter((name) => !(name in scripts))).toEqual([]);
  const called = [...text.matchAll(/npm run (?:-s )?platform -- (?:--remote )?(\w+)/g)];
  const methods = called.map(([, method = ""]) => method).filter((name) => name !== "METHOD");
  expect(methods.filter((name) => !(name in OPERATIONS))).toEqual([]);
});

test.each(GUIDES)(
  "%s: the parts of %s.md that are written from the code are up to date",
  (_, name) => {
    const text = read(join(FOLDER, `${name}.md`));
    expect(fillParts(text, ROOT)).toBe(text);
  },
);

/** The pages that one looks things up in, rather than reads. */
const LOOKED_UP = [REFERENCE, "docs/runbook.md"];

test.each(PAGES.filter((page) => !LOOKED_UP.includes(page)))(
  "%s has at most 1,500 words",
  (page) => {
    expect(read(page).split(/\s+/).length).toBeLessThanOrEqual(1_500);
  },
);

/** The text of a page without code, headings, the targets of links, and what is written from the code. */
const proseOf = (page: string) =>
  read(page).replace(
    /<!-- ([a-z-]+) -->\n.*?<!-- \/\1 -->|```.*?```|`[^`\n]*`|\]\([^)]*\)|^#+ [^\n]*$/gms,
    "",
  );

test.each(PAGES.filter((page) => page !== REFERENCE))(
  "%s writes durations in one form, such as 10 s, 5 min and 24 h",
  (page) => {
    const others =
      proseOf(page).match(
        /\b(\d[\d,]*|one|two|three|four|five|six|seven|eight|nine|ten|twelve|fifteen|twenty|thirty)[ -](seconds?|minutes?|hours?)\b/gi,
      ) ?? [];
    expect(others).toEqual([]);
  },
);

/** Words for which the docs have another one (site/guides/concepts.md). */
const OTHER_NAMES =
  /\b(subscriptions?|no-code receivers?|receiver checker|quotas?|redeliver\w*|given up|overflow|cron(?! triggers)|overdue|manual sends?|sent by hand|roll(s|ed|ing)? (a|the|your|it) (key|secret))\b/gi;

// In the code, a webhook is a subscription.
const OF_CODE = /^bench|^docs\/deliveries\.md/;

test.each(PAGES.filter((page) => !OF_CODE.test(page)))("%s has one name for one thing", (page) =>
  expect(proseOf(page).match(OTHER_NAMES) ?? []).toEqual([]),
);

const seconds = (ms: number) => ms / 1000;
const shown = (n: number) => n.toLocaleString("en");
/** How many leads a database holds without their events, in millions. */
const LEAD_MILLIONS = Math.floor(DATABASE_MAX_BYTES / LEAD_BYTES / 1e6);
/** The jurisdictions that wrangler.toml lists. */
const [, JURISDICTIONS = ""] = /is to stay: (.*?);/.exec(read("wrangler.toml")) ?? [];
/** In how many languages there are handlers, by the extensions of their files. */
const HANDLER_LANGUAGES = ["no", "one", "two", "three", "four", "five", "six", "seven", "eight"][
  new Set(
    readdirSync(EXAMPLES)
      .map(extname)
      .filter((extension) => !["", ".md", ".toml"].includes(extension)),
  ).size
];
const REMINDERS = `a reminder every ${REMINDER_WAIT_MS / DAY_MS} days, at most ${REMINDERS_MAX}`;
const listed = (items: (string | number)[]) => items.join(", ").replace(/, (?!.*, )/, " and ");

/** The figures in pages that are not generated. All other figures are generated, or their page names the constant. */
test.each([
  [
    "README.md",
    `holds about ${LEAD_MILLIONS} million leads without their events; its alarm starts at ${FULL_SHARE_MAX * 100}%, so plan for ${Math.floor((FULL_SHARE_MAX * DATABASE_MAX_BYTES) / LEAD_BYTES / 1e6)} million`,
  ],
  ["docs/deploying.md", `\`wrangler.toml\` is ${JURISDICTIONS.replaceAll('"', "`")}, or empty`],
  ["docs/performance.md", `which is ${LEAD_MILLIONS} million leads`],
  ["docs/performance.md", `a lead takes ${LEAD_BYTES} bytes`],
  ["docs/performance.md", `as full at ${(FULL_SHARE_MAX * DATABASE_MAX_BYTES) / 1e9} GB`],
  ["docs/deliveries.md", `The lease ends after ${seconds(LEASE_MS)} s`],
  ["docs/deliveries.md", `times out after ${seconds(POST_TIMEOUT_MS)} s`],
  ["docs/deliveries.md", `claims no more after ${seconds(DISPATCH_MAX_MS)} s`],
  [
    "docs/deliveries.md",
    `attempt then ends by ${seconds(DISPATCH_MAX_MS + CLAIM_VALID_MS + DNS_BEFORE_POST_MS + POST_TIMEOUT_MS)} s`,
  ],
  ["docs/deliveries.md", `follows up to ${seconds(DNS_BEFORE_POST_MS)} s later`],
  ["docs/deliveries.md", `a response of ${seconds(SLOW_RESPONSE_MS)} s or more`],
  ["docs/deliveries.md", `attempt fails ${TRIED_FOR_MAX_MS / HOUR_MS} h or more after the first`],
  ["docs/deliveries.md", `that has failed for ${DISABLE_AFTER_MS / HOUR_MS} h`],
  ["docs/deliveries.md", `after pauses of ${listed(CIRCUIT_OUTAGE_SECONDS.slice(0, -1))} s`],
  ["docs/deliveries.md", `then every ${CIRCUIT_OUTAGE_SECONDS.at(-1)} s`],
  ["docs/deliveries.md", `more than ${shown(PENDING_MAX)} pending deliveries`],
  ["docs/deliveries.md", `only if more than ${shown(PENDING_MAX)} wait`],
  ["SECURITY.md", `no private address within ${DNS_BEFORE_POST_MS} ms`],
  ["docs/oncall.md", `no check has run for ${SWEPT_WITHIN_MS / MINUTE_MS} min`],
  ["docs/oncall.md", `not respond within ${seconds(DATABASE_TIMEOUT_MS)} s`],
  ["docs/oncall.md", `If more than ${shown(PENDING_MAX)} deliveries`],
  ["docs/oncall.md", `start requests for about ${Math.ceil(seconds(DISPATCH_MAX_MS) + 1)} s`],
  ["docs/deliveries.md", `take effect within ${seconds(STOPS_WITHIN_MS)} s`],
  ["docs/deliveries.md", `stores up to ${RESPONSES_PER_DAY} responses a day`],
  [
    "docs/deliveries.md",
    `is read for up to ${RESPONSE_READ_MS} ms after its headers (${CLOUDFLARE_ERROR_READ_MS + RESPONSE_READ_MS} ms if`,
  ],
  ["docs/deliveries.md", `Up to ${shown(RESPONSE_KEPT_BYTES)} bytes of it`],
  ["docs/customers.md", `failed for ${DISABLE_AFTER_MS / HOUR_MS} h`],
  ["docs/customers.md", `any attempt ${TRIED_FOR_MAX_MS / HOUR_MS} h or more after its first`],
  ["docs/customers.md", `Responses take over ${seconds(SLOW_RESPONSE_MS)} s`],
  ["docs/customers.md", `takes them, up to ${CONCURRENCY_MAX} at a time`],
  ["docs/runbook.md", `took longer than ${seconds(DATABASE_TIMEOUT_MS)} s`],
  ["docs/runbook.md", `not started for ${SWEPT_WITHIN_MS / MINUTE_MS} min`],
  ["docs/runbook.md", `been due for ${STUCK_AFTER_MS / MINUTE_MS} min`],
  ["docs/runbook.md", `more than ${FULL_SHARE_MAX * 100}% of its ${DATABASE_MAX_BYTES / 1e9} GB`],
  ["docs/runbook.md", `has not run for ${SWEPT_WITHIN_MS / MINUTE_MS} min`],
  ["docs/runbook.md", `not respond within ${seconds(DATABASE_TIMEOUT_MS)} s`],
  ["site/guides/support.md", `no check has run for ${SWEPT_WITHIN_MS / MINUTE_MS} min`],
  ["site/guides/support.md", `not respond within ${seconds(DATABASE_TIMEOUT_MS)} s`],
  ["site/guides/support.md", `due for more than ${STUCK_AFTER_MS / MINUTE_MS} min`],
  ["site/guides/support.md", `more than ${FULL_SHARE_MAX * 100}% full`],
  ["docs/runbook.md", `tried ${EMAIL_WAITS_SECONDS.length + 1} times`],
  ["docs/runbook.md", `${EMAIL_WAITS_SECONDS.length} times in 2 days`],
  ["docs/admin.md", `has failed for ${TELL_AFTER_MS / HOUR_MS} h`],
  ["docs/admin.md", `retried ${EMAIL_WAITS_SECONDS.length} times`],
  ["docs/admin.md", REMINDERS],
  ["docs/admin.md", `within ${ERASED_LEADS_KEPT_DAYS} days, use another`],
  ["docs/admin.md", `up to ${PORTAL_LASTING_CHANGES_PER_DAY} times a day`],
  ["docs/admin.md", `the newest ${shown(PORTAL_CHANGES_KEPT)} are kept`],
  ["docs/admin.md", `the first ${KEY_CHANGES_PER_DAY} a day are kept`],
  [
    "docs/admin.md",
    `Every call to the Platform API except ${listed(
      Object.entries(OPERATIONS)
        .filter(([, { skipsAuditTrail }]) => skipsAuditTrail)
        .map(([name]) => `\`${name}\``),
    )}`,
  ],
  ["docs/runbook.md", `retried within ${seconds(LEASE_MS)} s`],
  ["docs/keys.md", `(${SECRET_OVERLAP_SECONDS.default / 3600} h by default)`],
  ["docs/admin.md", `${SUBSCRIPTIONS_MAX} per workspace`],
  ["docs/admin.md", `allows up to ${AGREED_SUBSCRIPTIONS_MAX}`],
  ["docs/admin.md", `at most ${WORKSPACE_EMAILS_PER_DAY} e-mails a day`],
  ["docs/data.md", `for ${ERASED_LEADS_KEPT_DAYS} days, no reference`],
  [
    "docs/data.md",
    `${FULL_SHARE_MAX * 100}% full (${(FULL_SHARE_MAX * DATABASE_MAX_BYTES) / 1e9} of ${DATABASE_MAX_BYTES / 1e9} GB)`,
  ],
  ["docs/data.md", `${variablesOf(ROOT)("EVENTS_KEPT_DAYS")} days (\`EVENTS_KEPT_DAYS\`)`],
  ["docs/data.md", `the newest ${variablesOf(ROOT)("EVENTS_KEPT_MAX")} (\`EVENTS_KEPT_MAX\`)`],
  ["docs/recording.md", `for ${REMOVED_AUTOMATIONS_KEPT_DAYS} days, a report`],
  ["docs/recording.md", `Beyond ${shown(PENDING_MAX)} pending deliveries`],
  ["docs/recording.md", `in 100 ms takes at most ${CONCURRENCY_MAX * 10} a second`],
  ["docs/recording.md", `can be resent, ${shown(REDELIVERIES_PER_HOUR)} an hour`],
  ["docs/recording.md", `at most ${RECORD_MAX_BYTES / 1024} KiB of JSON`],
  ["docs/recording.md", `custom fields ${NESTING_MAX} levels deep`],
  ["site/guides/webhooks.md", `after more than ${seconds(POST_TIMEOUT_MS)} s counts as a failure`],
  ["site/guides/webhooks.md", `A workspace has at most ${SUBSCRIPTIONS_MAX}`],
  ["site/guides/statuses.md", `**2xx within ${seconds(POST_TIMEOUT_MS)} s**`],
  ["site/guides/statuses.md", `a record has at most ${RECORD_MAX_BYTES / 1024} KiB`],
  ["site/guides/statuses.md", `at most ${RETRY_AFTER_MAX_SECONDS / 60} min later`],
  ["site/guides/events.md", `The record has at most ${RECORD_MAX_BYTES / 1024} KiB`],
  ["site/guides/headers.md", `\`${HEADERS["User-Agent"]}\`, for firewalls`],
  ["site/guides/headers.md", `Up to ${HEADERS_MAX} [custom headers]`],
  ["site/guides/no-code.md", `**2xx within ${seconds(POST_TIMEOUT_MS)} s**`],
  ["site/guides/polling.md", `with \`limit=${PAGE_LIMIT.max}\``],
  ["site/guides/signatures.md", `after ${seconds(POST_TIMEOUT_MS)} s or 2 MB`],
  [
    "site/guides/signatures.md",
    `${SECRET_OVERLAP_SECONDS.default / 3600} h unless you change it, at most ${SECRET_OVERLAP_SECONDS.max / 86_400} days`,
  ],
  ["site/guides/signatures.md", `For the first ${seconds(ROTATION_MS)} s`],
  ["site/guides/signatures.md", `“${en.endOverlap.button.replace(/…$/, "")}”`],
  ["site/guides/processing.md", `up to ${CONCURRENCY_MAX} at a time`],
  ["site/guides/processing.md", `longer than ${seconds(POST_TIMEOUT_MS)} s`],
  ...["processing", "idempotency"].map((guide): [string, string] => [
    `site/guides/${guide}.md`,
    `ids for ${REDELIVERY_MAX_AGE_MS / DAY_MS + REPLAY_MAX_DAYS + RETRIED_DAYS.max} days`,
  ]),
  ["site/guides/processing.md", `can be resent for ${REDELIVERY_MAX_AGE_MS / DAY_MS} days`],
  ["site/guides/processing.md", `a replay takes up to ${REPLAY_MAX_DAYS}`],
  ["site/guides/retries.md", `a 2xx within ${seconds(POST_TIMEOUT_MS)} s`],
  [
    "site/guides/retries.md",
    `a failure ${TRIED_FOR_MAX_MS / HOUR_MS} h or more after the first attempt`,
  ],
  ["site/guides/retries.md", `less than ${DISABLE_AFTER_MS / HOUR_MS} h`],
  ["site/guides/retries.md", `A response after ${seconds(SLOW_RESPONSE_MS)} s or more`],
  [
    "site/guides/retries.md",
    `test at least every ${(CIRCUIT_OUTAGE_SECONDS.at(-1) ?? 0) / 60} min`,
  ],
  ["site/guides/retries.md", `share of up to ${RETRY_JITTER * 100}%`],
  ...["retries", "concepts", "processing"].map((guide): [string, string] => [
    `site/guides/${guide}.md`,
    `retried for ${RETRIED_DAYS.min} to ${RETRIED_DAYS.max} days`,
  ]),
  ["site/guides/retries.md", `the events of the last ${REDELIVERY_MAX_AGE_MS / DAY_MS} days`],
  ["site/guides/retries.md", `at most ${shown(PENDING_MAX)} pending deliveries`],
  ["site/guides/retries.md", `from 1 up to ${CONCURRENCY_MAX}`],
  [
    "site/guides/retries.md",
    `At 100 ms a response, that is at most ${CONCURRENCY_MAX * 10} a second`,
  ],
  ["site/guides/retries.md", `once ${CIRCUIT_OPENS_AFTER_EVENTS} events of the type`],
  [
    "site/guides/retries.md",
    `${CIRCUIT_REJECTED_SECONDS[0]} s, growing to ${(CIRCUIT_REJECTED_SECONDS.at(-1) ?? 0) / 60} min`,
  ],
  [
    "site/guides/retries.md",
    `${CIRCUIT_OUTAGE_SECONDS[0]} s, growing to ${(CIRCUIT_OUTAGE_SECONDS.at(-1) ?? 0) / 60} min`,
  ],
  ["site/guides/retries.md", `429 or 503, up to ${RETRY_AFTER_MAX_SECONDS / 60} min`],
  ["site/guides/retries.md", `| ${TELL_AFTER_MS / HOUR_MS} h | The administrators`],
  [
    "site/guides/retries.md",
    `| ${DISABLE_AFTER_MS / HOUR_MS} h without any success | The webhook is disabled, provided at least ${DISABLE_AFTER_FAILURES} attempts`,
  ],
  ["site/guides/retries.md", `“${en.sendAgain.button.replace(/…$/, "")}”`],
  ["site/guides/retries.md", `“${en.enable.missed}”`],
  ["site/guides/retries.md", `“${en.sendAgain.delivered.replace(/:.*/, "")}” ticked`],
  ["site/guides/retries.md", REMINDERS],
  ["site/guides/retries.md", `After ${REPLAY_MAX_DAYS} days it stops`],
  ["site/guides/retries.md", `may have more than ${RETRY_WAITS_SECONDS.length + 1}`],
  ["site/guides/network.md", `at most ${shown(URL_MAX_LENGTH)} characters`],
  ["site/guides/network.md", `up to ${HEADERS_MAX} headers`],
  ["site/guides/network.md", `at most ${shown(HEADER_VALUE_MAX_LENGTH)} visible`],
  ["site/guides/network.md", `up to ${seconds(STOPS_WITHIN_MS)} s after`],
  ["site/guides/network.md", `up to ${seconds(STOPS_WITHIN_MS)} s later`],
  ["site/guides/network.md", `\`User-Agent: ${HEADERS["User-Agent"]}\``],
  ["site/guides/portal.md", `works for ${PORTAL_LINK_OPENS_MS / MINUTE_MS} min.`],
  ["site/guides/portal.md", `The session lasts ${PORTAL_LINK_MINUTES.default / 60} h`],
  ["site/guides/portal.md", `only the newest ${shown(PORTAL_CHANGES_KEPT)} are kept`],
  ["site/guides/portal.md", `the first ${KEY_CHANGES_PER_DAY} changes a day`],
  ["site/guides/portal.md", `up to ${PORTAL_LASTING_CHANGES_PER_DAY} changes of URLs`],
  ["site/guides/testing.md", `${TEST_EVENTS_PER_MINUTE} test events a minute`],
  [
    "site/guides/testing.md",
    `an invented lead (\`${HARD_DELIVERIES["lead.created"].data.email}\`)`,
  ],
  ["site/guides/errors.md", `itself after ${seconds(READ_MAX_MS)} s`],
  ["site/guides/authentication.md", `at most ${KEY_OVERLAP_MAX_SECONDS / 86_400} days`],
  ["site/guides/troubleshooting.md", `up to ${CONCURRENCY_MAX} at a time`],
  ["site/guides/troubleshooting.md", `longer than ${seconds(POST_TIMEOUT_MS)} s`],
  ["site/guides/troubleshooting.md", `failed for ${DISABLE_AFTER_MS / HOUR_MS} h`],
  ["site/guides/troubleshooting.md", `at least ${DISABLE_AFTER_FAILURES} attempts`],
  ["site/guides/troubleshooting.md", `“${en.enable.missed}”`],
  ["wrangler.toml", `simple = { limit = ${PORTAL_REQUESTS}, period = 60 }`],
  ["docs/portal.md", `may make ${PORTAL_REQUESTS} requests per minute`],
  ["site/guides/libraries.md", `in ${HANDLER_LANGUAGES} languages`],
  ["CHANGELOG.md", `handlers** in ${HANDLER_LANGUAGES} languages`],
  ["site/page/flow.svg", `Any 2xx within ${seconds(POST_TIMEOUT_MS)} s`],
  ["site/page/flow.svg", `no 2xx within ${seconds(POST_TIMEOUT_MS)} s:`],
  // Handlers do not wait for the rest of a request that we have aborted.
  ...["node.ts", "stripe.ts", "standardwebhooks.ts"].map((file): [string, string] => [
    `examples/receivers/${file}`,
    `requestTimeout: ${seconds(POST_TIMEOUT_MS)}_000,`,
  ]),
  ["examples/receivers/worker.ts", `READ_TIMEOUT = ${seconds(POST_TIMEOUT_MS)}_000;`],
  ["examples/receivers/receiver.py", `READ_TIMEOUT = ${seconds(POST_TIMEOUT_MS)}\n`],
  ["examples/receivers/receiver.rb", `READ_TIMEOUT = ${seconds(POST_TIMEOUT_MS)}\n`],
  ["examples/receivers/receiver.go", `readTimeout = ${seconds(POST_TIMEOUT_MS)} * time.Second`],
] as const)("%s states what the code does: %s", (page, figure) => {
  expect(read(page).includes(figure), `${page} must say: ${figure}`).toBe(true);
});

/** The text of all guides. */
const ALL_GUIDES = GUIDES.map(([, name]) => read(join(FOLDER, `${name}.md`))).join("\n");

test("each request that the site shows in every language stands in a guide", () => {
  expect(REQUESTS.length).toBeGreaterThan(1);
  expect(REQUESTS.map(([, curl]) => curl).filter((curl) => !ALL_GUIDES.includes(curl))).toEqual([]);
});

test("each guide shows the values of the deployment in the phrases that the Worker fills in", () => {
  const literal = (phrase: string) =>
    phrase.replace(/\{\{(\w+)\}\}/g, (_, name: string) => variablesOf(ROOT)(name));
  expect(DEPLOYED.filter((phrase) => !ALL_GUIDES.includes(literal(phrase)))).toEqual([]);
});

// No compiler and no other test asks for an event type there.
test.each([
  "examples/client/copy.ts",
  "examples/client/events.ts",
  "examples/client/receive.ts",
  "site/guides/events.md",
  "site/guides/local.md",
  "test/contract/support.ts",
])("%s names every event type", (page) => {
  const text = read(page);
  expect(WebhookEvent.options.filter((type) => !text.includes(type))).toEqual([]);
});

test("the docs name one Node for the service, one for its scripts, and one for what is copied from them", () => {
  const { engines } = JSON.parse(read("package.json"));
  const [, scripts] = /NODE_MIN = (\d+)/.exec(read("scripts/ready.js")) ?? [];
  const wanted: Record<string, string> = {
    "README.md": engines.node.replace(">=", ""),
    "docs/deploying.md": engines.node.replace(">=", ""),
    [join(FOLDER, "local.md")]: engines.node.replace(">=", ""),
    "CONTRIBUTING.md": String(scripts),
  };
  const named = PAGES.flatMap((page) =>
    [...read(page).matchAll(/\bNode (\d[\d.]*\d)/g)].map(([, version]) => ({ page, version })),
  );
  expect(named.length).toBeGreaterThan(10);
  expect(named.filter(({ page, version }) => version !== (wanted[page] ?? "22.18"))).toEqual([]);
});

test("README.md links every guide", () => {
  const page = read("README.md");
  expect(GUIDES.filter(([, name]) => !page.includes(`](${FOLDER}/${name}.md)`))).toEqual([]);
});

test("examples/receivers/README.md links every handler", () => {
  const page = read("examples/receivers/README.md");
  const linked = [...page.matchAll(/\]\(([\w.]+)\)/g)].map(([, file]) => file);
  const present = readdirSync(EXAMPLES).filter((file) => !/^\.|\.md$/.test(file));
  expect(linked.toSorted()).toEqual(present.toSorted());
});

test("the example handlers remember an event for as long as it may arrive again", () => {
  const weeks = 6;
  const [, days] = /Keep ids for (\d+) days/.exec(read("site/guides/processing.md")) ?? [];
  expect(Number(days)).toBe(REDELIVERY_MAX_AGE_MS / DAY_MS + REPLAY_MAX_DAYS + RETRIED_DAYS.max);
  expect(Number(days)).toBeLessThanOrEqual(7 * weeks);
  expect(read("examples/receivers/receiver.php")).toContain("older than six weeks");
  expect(read("examples/receivers/worker.ts")).toContain(`+ ${7 * weeks} * 86_400_000)`);
});

test("the command that reads a key out of the Worker changes the code that is there", () => {
  const [, from = ""] = /sed -i\.bak 's\/(.*?)\//.exec(read("docs/secrets.md")) ?? [];
  expect(read("src/platform/health.ts").split(from)).toHaveLength(2);
  // The scheduled job logs the problems. It finds them elsewhere, so the log does not get the key.
  expect(read("src/sweep.ts")).toContain("noteServiceHealth(");
  const others = ["src/sweep.ts", "src/service-health.ts"].map(read);
  expect(others.filter((text) => text.includes(from) || text.includes("platform/"))).toEqual([]);
});

// In zsh, `#` begins no comment at the prompt; and `read` takes the next line that is pasted for its value.
test("the commands of operators can be pasted: without comments, and each `read -rs` by itself", () => {
  const blocks = PAGES.filter((page) => page === "README.md" || page.startsWith("docs")).flatMap(
    (page) => [...read(page).matchAll(/```sh\n(.*?)```/gs)].map(([, block = ""]) => block.trim()),
  );
  expect(blocks.length).toBeGreaterThan(50);
  expect(blocks.filter((block) => /(^|\s)#\s/m.test(block))).toEqual([]);
  const reading = blocks.filter((block) => block.includes("read -rs"));
  expect(reading.length).toBeGreaterThan(0);
  for (const block of reading) expect(block).toMatch(/^read -rs \w+$/);
});

test("no command of the docs writes npm's own output into a file", () => {
  const lines = PAGES.flatMap((page) => read(page).split("\n"));
  const written = lines.filter((line) => /^\s*npm run [^#]*> \S/.test(line));
  expect(written.length).toBeGreaterThan(0);
  for (const line of written) expect(line).toMatch(/npm run -s /);
});

test("the figures of the benchmark keep the names that others use, each with what it is compared with", () => {
  expect(Object.keys(FIGURES)).toEqual(
    expect.arrayContaining([
      ...["hot_read_hops", "flood_hops", "framework_ratio", "rows_read_over_limit"],
      ...["deep_page_ratio", "isolation_ratio", "hostile_p99_ratio", "rows_written_per_delivery"],
      ...["rows_written_half_429", "rows_written_dead", "by_hand_deliveries_ratio"],
      ...["by_hand_reads_ratio", "by_hand_receipt_p99_ratio", "by_hand_isolation_ms"],
    ]),
  );
  const [head, one, several] = describeFigures({
    framework_ratio: [0.9],
    isolation_ratio: [3, 1, 2],
  });
  expect(head).toMatch(/^figure +median +rounds +unit +of +compared with$/);
  expect(one).toMatch(/^framework_ratio +0\.9 +one round +× +\S.* {2,}\S/);
  expect(several).toMatch(/^isolation_ratio +2 +1 to 3 +× +\S.* {2,}\S/);
});

test("the reference of the Platform API is what `npm run reference` writes", () => {
  expect(read(REFERENCE)).toBe(platformReference());
});

test("every operation of the Platform API is described in sentences and has valid examples", () => {
  for (const [name, { about, input, examples }] of Object.entries(OPERATIONS)) {
    expect(about, name).toMatch(/^[A-Z].*\.$/);
    for (const example of examples) expect(input.safeParse(example).success, name).toBe(true);
  }
});

/** The anchors that GitHub gives to a page's headings. */
function anchorsOf(text: string): string[] {
  const headings = [...text.replace(/^```.*?^```/gms, "").matchAll(/^#+ (.+)$/gm)];
  return headings.map(([, heading = ""]) =>
    heading
      .toLowerCase()
      .replace(/[^\p{L}\p{N}\s_-]/gu, "")
      .replaceAll(" ", "-"),
  );
}
