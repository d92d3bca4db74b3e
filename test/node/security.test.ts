import { readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { ROOT } from "../../scripts/shared/checkout.ts";
import { readConfig } from "../../scripts/shared/databases.ts";
import {
  AGREED_SUBSCRIPTIONS_MAX,
  API_KEYS_MAX,
  AUDIT_KEPT_DAYS,
  KEY_CHANGES_PER_DAY,
  PAGE_MAX_BYTES,
  PENDING_MAX,
  PORTAL_CHANGES_KEPT,
  PORTAL_LASTING_CHANGES_PER_DAY,
  PORTAL_LASTING_CHANGES_WITH_DELETIONS_PER_DAY,
  REDELIVERIES_PER_HOUR,
  REPLAY_MAX_DAYS,
  REPLAYS_MAX,
  RESENDS_PENDING_MAX,
  RESPONSES_PER_DAY,
  SUBSCRIPTIONS_MAX,
  TEST_EVENTS_PER_MINUTE,
  WORKSPACE_EMAILS_PER_DAY,
} from "../../src/contract/limits.ts";
import { HEADERS_KEPT_BYTES, RESPONSE_KEPT_BYTES } from "../../src/delivery/response.ts";
import { DELIVERIES_EXAMINED_MAX } from "../../src/history/deliveries.ts";
import { FAILURES_EXAMINED_MAX } from "../../src/history/failing.ts";
import { SEARCHED_MAX } from "../../src/records/finding.ts";
import { REDELIVERY_EXAMINED_MAX } from "../../src/replay/replay.ts";

const read = (file: string) => readFileSync(join(ROOT, file), "utf8");
const { vars, ratelimits = [] } = await readConfig(join(ROOT, "wrangler.toml"));
const portal = ratelimits.find(({ name }) => name === "PORTAL_REQUESTS")?.simple.limit;

/** The rows that the requests of a portal may read in a minute, which hostile.test.ts measures. */
const [, portalRows = ""] =
  /ROWS_PER_MINUTE = ([\d_]+)/.exec(read("test/worker/http/portal/hostile.test.ts")) ?? [];

/** The numbers of each bound in SECURITY.md, in their order. */
const BOUNDS: Record<string, unknown[]> = {
  "requests with one key": [vars.QUOTA_REQUESTS, API_KEYS_MAX],
  "a page of a list": [PAGE_MAX_BYTES],
  "requests to the portal": [portal, portal],
  "rows that the portal reads": [portalRows.replaceAll("_", "")],
  "deliveries that a filtered list of the portal examines": [DELIVERIES_EXAMINED_MAX],
  "failures that a filtered list or a count of the portal examines": [FAILURES_EXAMINED_MAX],
  "leads that a search in the portal decrypts": [SEARCHED_MAX],
  "events that a replay examines and schedules": [REDELIVERY_EXAMINED_MAX],
  "events that are resent and replayed": [REDELIVERIES_PER_HOUR],
  replays: [REPLAYS_MAX, REPLAY_MAX_DAYS],
  "resends that are pending": [RESENDS_PENDING_MAX],
  "test events": [TEST_EVENTS_PER_MINUTE],
  "stored responses, to failed attempts and test events": [
    RESPONSES_PER_DAY,
    RESPONSE_KEPT_BYTES + HEADERS_KEPT_BYTES,
  ],
  "pending deliveries": [PENDING_MAX],
  "pending deliveries that the scheduled job counts": [PENDING_MAX],
  webhooks: [SUBSCRIPTIONS_MAX, AGREED_SUBSCRIPTIONS_MAX],
  "events without a pending delivery": [vars.EVENTS_KEPT_MAX, vars.EVENTS_KEPT_DAYS],
  "entries of the audit trail about URLs, secrets and headers in the portal": [
    PORTAL_LASTING_CHANGES_PER_DAY,
    PORTAL_LASTING_CHANGES_WITH_DELETIONS_PER_DAY,
    AUDIT_KEPT_DAYS,
  ],
  "entries of the audit trail about webhooks created and deleted with a key": [
    KEY_CHANGES_PER_DAY,
    AUDIT_KEPT_DAYS,
  ],
  "other entries of changes in the portal": [PORTAL_CHANGES_KEPT],
  "e-mails": [WORKSPACE_EMAILS_PER_DAY],
};

test("What one tenant can cost is stated in SECURITY.md as the code bounds it", () => {
  const [, section = ""] = read("SECURITY.md").split("## What one tenant can cost");
  const [table = ""] = section.split("\n## ");
  const rows = table.split("\n").filter((line) => line.startsWith("| "));
  const stated = rows.slice(1).map((row) => {
    const [, what = "", bound = ""] = row.split("|").map((cell) => cell.trim());
    return [what, [...bound.matchAll(/\d[\d,]*/g)].map(([n]) => n.replaceAll(",", "").trim())];
  });
  const bounds = Object.entries(BOUNDS).map(([what, all]) => [what, all.map(String)]);
  expect(stated).toEqual(bounds);
});
