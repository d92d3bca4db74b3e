import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import { describeFigures, FIGURES } from "../../bench/figures.ts";
import { LEAD_BYTES } from "../../bench/price.ts";
import { platformReference, REFERENCE } from "../../scripts/platform/reference.ts";
import { ROOT } from "../../scripts/shared/checkout.ts";
import { KEEP_IDS_DAYS } from "../../site/guides.ts";
import { WebhookEvent } from "../../src/contract/enumerations.ts";
import {
  AGREED_SUBSCRIPTIONS_MAX,
  DISABLE_AFTER_MS,
  EMAIL_WAITS_SECONDS,
  ERASED_LEADS_KEPT_DAYS,
  EXPIRES_AFTER_MS,
  NESTING_MAX,
  OUTAGE_SPACING_SECONDS,
  PENDING_MAX,
  PORTAL_CHANGES_KEPT,
  PORTAL_LASTING_CHANGES_PER_DAY,
  POST_TIMEOUT_MS,
  RECORD_MAX_BYTES,
  REDELIVERIES_PER_SECOND,
  REMOVED_AUTOMATIONS_KEPT_DAYS,
  RESPONSES_PER_DAY,
  RETRY_WAITS_SECONDS,
  SECRET_OVERLAP_SECONDS,
  SUBSCRIPTIONS_MAX,
  TELL_AFTER_MS,
  WORKSPACE_EMAILS_PER_DAY,
} from "../../src/contract/limits.ts";
import { DAY_MS, HOUR_MS, MINUTE_MS } from "../../src/contract/time.ts";
import { PAGE_EXAMINED_MAX } from "../../src/db/page.ts";
import { DISPATCH_MAX_MS } from "../../src/delivery/dispatch.ts";
import { CONCURRENCY_MAX, SLOW_RESPONSE_MS } from "../../src/delivery/policy.ts";
import { RESPONSE_KEPT_BYTES, RESPONSE_READ_MS } from "../../src/delivery/response.ts";
import { LEASE_MS } from "../../src/delivery/round.ts";
import { OPERATIONS } from "../../src/platform/operations.ts";
import { REDELIVERY_EXAMINED_MAX } from "../../src/replay/replay.ts";
import {
  DATABASE_TIMEOUT_MS,
  FULL_SHARE_MAX,
  STUCK_AFTER_MS,
  SWEPT_WITHIN_MS,
} from "../../src/service-health.ts";
import { DATABASE_MAX_BYTES } from "../../src/workspaces/database-figures.ts";
import { EXAMPLES } from "./support/examples.ts";

const PAGES = ["", "docs", "examples/receivers"].flatMap((folder) =>
  readdirSync(join(ROOT, folder))
    .filter((name) => name.endsWith(".md"))
    .map((name) => join(folder, name)),
);

const read = (page: string) => readFileSync(join(ROOT, page), "utf8");

test.each(PAGES)("%s links only to what exists", (page) => {
  const links = [...read(page).matchAll(/\]\((?!https?:)([^)#\s]*)(?:#([^)\s]*))?\)/g)];
  const broken = links.filter(([, path, anchor]) => {
    const target = path ? join(dirname(page), path) : page;
    if (!existsSync(join(ROOT, target))) return true;
    return anchor !== undefined && !anchorsOf(read(target)).includes(anchor);
  });
  expect(broken.map(([link]) => link)).toEqual([]);
});

test.each(PAGES)("%s names only npm scripts and Platform methods that exist", (page) => {
  const { scripts } = JSON.parse(read("package.json"));
  const text = read(page);
  const named = [...text.matchAll(/npm run (?:-s |--silent )?([a-z][\w:-]*)/g)];
  expect(named.map(([, name = ""]) => name).filter((name) => !(name in scripts))).toEqual([]);
  const called = [...text.matchAll(/npm run (?:-s )?platform -- (?:--remote )?(\w+)/g)];
  const methods = called.map(([, method = ""]) => method).filter((name) => name !== "METHOD");
  expect(methods.filter((name) => !(name in OPERATIONS))).toEqual([]);
});

const seconds = (ms: number) => ms / 1000;
const shown = (n: number) => n.toLocaleString("en");
const delay = (s: number) => (s < 60 ? `${s} s` : `${s / 60} min`);
/** How many leads a database holds without their events, in millions. */
const LEAD_MILLIONS = Math.floor(DATABASE_MAX_BYTES / LEAD_BYTES / 1e6);
const listed = (items: (string | number)[]) => items.join(", ").replace(/, (?!.*, )/, " and ");

/** The figures in pages that are not generated. All other figures are generated, or their page names the constant. */
test.each([
  ["README.md", `holds about ${LEAD_MILLIONS} million leads`],
  ["docs/performance.md", `which is ${LEAD_MILLIONS} million leads`],
  ["docs/performance.md", `a lead takes ${LEAD_BYTES} bytes`],
  ["docs/deliveries.md", `the lease ends after ${seconds(LEASE_MS)} s`],
  ["docs/deliveries.md", `times out after ${seconds(POST_TIMEOUT_MS)} s`],
  ["docs/deliveries.md", `starts no request after ${seconds(DISPATCH_MAX_MS)} s`],
  ["docs/deliveries.md", `If a success takes ${seconds(SLOW_RESPONSE_MS)} s`],
  [
    "docs/deliveries.md",
    `has failed before and has been due for ${EXPIRES_AFTER_MS / DAY_MS} days`,
  ],
  ["docs/deliveries.md", `more than ${shown(PENDING_MAX)} (`],
  ["docs/deliveries.md", `the first ${RESPONSES_PER_DAY} of a subscription each day`],
  ["docs/deliveries.md", `waited for at most ${RESPONSE_READ_MS} ms`],
  ["docs/deliveries.md", `up to ${shown(RESPONSE_KEPT_BYTES)} bytes of it`],
  ["docs/deliveries.md", `one schedule of ${REDELIVERIES_PER_SECOND} per second`],
  ["docs/deliveries.md", `examines up to ${shown(REDELIVERY_EXAMINED_MAX)} events`],
  ["docs/deliveries.md", `is retried after ${listed(RETRY_WAITS_SECONDS.slice(0, 4).map(delay))}`],
  [
    "docs/deliveries.md",
    `lengthens the spacing: ${OUTAGE_SPACING_SECONDS.unavailable.slice(1, 6).join(", ")} s`,
  ],
  [
    "docs/deliveries.md",
    `spacing grows to ${listed(OUTAGE_SPACING_SECONDS.unavailable.slice(6))} s`,
  ],
  ["CHANGELOG.md", `more than ${shown(PAGE_EXAMINED_MAX)} hidden items`],
  ["docs/customers.md", `failed for ${DISABLE_AFTER_MS / HOUR_MS} h`],
  ["docs/customers.md", `has failed and has been due for ${EXPIRES_AFTER_MS / DAY_MS} days`],
  ["docs/customers.md", `Responses take over ${seconds(SLOW_RESPONSE_MS)} s`],
  ["docs/customers.md", `at up to ${CONCURRENCY_MAX} at a time`],
  ["docs/runbook.md", `took longer than ${seconds(DATABASE_TIMEOUT_MS)} s`],
  ["docs/runbook.md", `not started for ${SWEPT_WITHIN_MS / MINUTE_MS} minutes`],
  ["docs/runbook.md", `been due for ${STUCK_AFTER_MS / MINUTE_MS} minutes`],
  ["docs/runbook.md", `more than ${FULL_SHARE_MAX * 100}% of its ${DATABASE_MAX_BYTES / 1e9} GB`],
  ["docs/runbook.md", `has not run for ${SWEPT_WITHIN_MS / MINUTE_MS} minutes`],
  ["docs/runbook.md", `not respond within ${seconds(DATABASE_TIMEOUT_MS)} s`],
  ["site/guides/support.md", `no check has run for ${SWEPT_WITHIN_MS / MINUTE_MS} minutes`],
  ["site/guides/support.md", `due for more than ${STUCK_AFTER_MS / MINUTE_MS} minutes`],
  ["site/guides/support.md", `more than ${FULL_SHARE_MAX * 100}% full`],
  ["docs/runbook.md", `tried ${EMAIL_WAITS_SECONDS.length + 1} times`],
  ["docs/runbook.md", `${EMAIL_WAITS_SECONDS.length} times in two days`],
  ["docs/admin.md", `once it has lasted ${TELL_AFTER_MS / HOUR_MS} hours`],
  ["docs/admin.md", `retried ${EMAIL_WAITS_SECONDS.length} times`],
  ["docs/admin.md", `up to ${PORTAL_LASTING_CHANGES_PER_DAY} a day`],
  ["docs/admin.md", `the newest ${shown(PORTAL_CHANGES_KEPT)}.`],
  ["docs/runbook.md", `retried within ${seconds(LEASE_MS)} s`],
  ["docs/keys.md", `(${SECRET_OVERLAP_SECONDS.default / 3600} hours by default)`],
  ["docs/admin.md", `${SUBSCRIPTIONS_MAX} per workspace`],
  ["docs/admin.md", `allows up to ${AGREED_SUBSCRIPTIONS_MAX}`],
  ["docs/admin.md", `at most ${WORKSPACE_EMAILS_PER_DAY} e-mails a day`],
  ["docs/admin.md", `for ${ERASED_LEADS_KEPT_DAYS} days, no reference`],
  ["docs/recording.md", `for ${REMOVED_AUTOMATIONS_KEPT_DAYS} days, a report`],
  ["docs/recording.md", `at most ${RECORD_MAX_BYTES / 1024} KiB of JSON`],
  ["docs/recording.md", `custom fields ${NESTING_MAX} levels deep`],
  ["site/page/flow.svg", `Any 2xx within ${seconds(POST_TIMEOUT_MS)} seconds`],
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
  expect(read(page)).toContain(figure);
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

test("examples/receivers/README.md links every handler", () => {
  const page = read("examples/receivers/README.md");
  const linked = [...page.matchAll(/\]\(([\w.]+)\)/g)].map(([, file]) => file);
  const present = readdirSync(EXAMPLES).filter((file) => !/^\.|\.md$/.test(file));
  expect(linked.toSorted()).toEqual(present.toSorted());
});

test("the example handlers remember an event for as long as it may arrive again", () => {
  const weeks = 6;
  expect(KEEP_IDS_DAYS).toBeLessThanOrEqual(7 * weeks);
  expect(read("examples/receivers/receiver.php")).toContain("older than six weeks");
  expect(read("examples/receivers/worker.ts")).toContain(`+ ${7 * weeks} * 86_400_000)`);
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
