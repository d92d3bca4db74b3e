import {
  DISABLE_AFTER_FAILURES,
  DISABLE_AFTER_MS,
  PENDING_COUNTED_MAX,
} from "../../src/contract/limits.ts";
import type {
  DeliveryView,
  FailureCount,
  WebhookDetails,
  WebhookView,
} from "../../src/history/views.ts";
import { isAccepted } from "./format.ts";
import { t } from "./text.ts";

/** Maximum length of a URL that is shown in one line, in characters. */
const SHORT_URL_MAX = 52;
const MASK = "•••";

/** Masks the query values of a URL, because they often are tokens. */
export function maskUrl(url: string): string {
  const { protocol, host, pathname, searchParams } = new URL(url);
  const names = [...new Set(searchParams.keys())];
  const query = names.map((name) => `${encodeURIComponent(name)}=${MASK}`).join("&");
  return `${protocol}//${host}${pathname === "/" ? "" : pathname}${query && `?${query}`}`;
}

/** Returns the host of a URL, and the beginning of its path that fits a line. */
export function shortUrl(url: string): string {
  const { host, pathname } = new URL(url);
  const path = pathname === "/" ? "" : pathname;
  const room = Math.max(12, SHORT_URL_MAX - host.length);
  return host + (path.length > room ? `${path.slice(0, room / 2)}…${path.slice(-room / 2)}` : path);
}

/** Returns the name of a webhook: its description, or a short form of its URL. */
export function nameOf({ description, url }: Pick<WebhookView, "description" | "url">): string {
  return description || shortUrl(url);
}

/** Whether it was disabled by failures, and not by a person. */
export function wasDisabledByFailures(webhook: WebhookView): boolean {
  const { disabledAt, failingSince, failures } = webhook;
  if (disabledAt === null || failingSince === null) return false;
  const failedMs = Date.parse(disabledAt) - Date.parse(failingSince);
  return failures >= DISABLE_AFTER_FAILURES && failedMs >= DISABLE_AFTER_MS;
}

/** Whether it needs attention. */
export function isTroubled(webhook: WebhookView): boolean {
  const { state } = webhook;
  return state === "failing" || state === "rejecting" || wasDisabledByFailures(webhook);
}

const BY_HEALTH: readonly WebhookView["state"][] = [
  "failing",
  "rejecting",
  "slow",
  "backlog",
  "healthy",
  "disabled",
];

/** Sorts webhooks by how much they need attention; equal ones stay in their order. */
export function sortByHealth(webhooks: readonly WebhookView[]): WebhookView[] {
  const rank = (webhook: WebhookView) =>
    wasDisabledByFailures(webhook) ? 0.5 : BY_HEALTH.indexOf(webhook.state);
  return webhooks.toSorted((a, b) => rank(a) - rank(b));
}

/** Returns the failure to explain: the last attempt, or the last one that failed; null if there is none. */
export function failureOf({ lastAttempt, lastFailure }: WebhookView) {
  return lastAttempt && !isAccepted(lastAttempt) ? lastAttempt : lastFailure;
}

/** Whether a delivery is due in the future. */
export function isWaiting({ dueAt }: DeliveryView): boolean {
  return dueAt !== null && Date.parse(dueAt) > Date.now();
}

/** Counts the deliveries that wait for an attempt, whether one has failed or not. */
export function countWaiting({ pending, retrying }: WebhookDetails): number {
  return pending + retrying;
}

/** Shows the number of these deliveries. There may be more than were counted. */
export function formatWaiting(webhook: WebhookDetails): string {
  const { pending, retrying } = webhook;
  const hasMore = Math.max(pending, retrying) >= PENDING_COUNTED_MAX;
  return t.failures.count(countWaiting(webhook), hasMore);
}

/** Adds up the failures of several webhooks. */
export function sumFailures(counts: readonly FailureCount[]): Omit<FailureCount, "webhookId"> {
  return {
    retrying: counts.reduce((sum, one) => sum + one.retrying, 0),
    exhausted: counts.reduce((sum, one) => sum + one.exhausted, 0),
    hasMore: counts.some((one) => one.hasMore),
  };
}
