import { HOUR_MS } from "../contract/time.ts";

/*
 * To add a rate limit: its variables in `wrangler.toml`, in `[vars]` and `[env.staging.vars]`. Docs and headers follow, and
 * tests have values of their own (`scripts/shared/test-settings.ts`). A window that is not fixed needs another shape
 * here, and in the storage of `KeyGate`.
 */

/** A fixed window, which opens with its first request and closes `windowMs` later. */
export interface Window {
  startedAt: number;
  count: number;
}

export interface Rule {
  limit: number;
  windowMs: number;
}

/** The state of a window, as the rate limit headers report it. */
export interface RateLimit {
  limit: number;
  remaining: number;
  resetMs: number;
}

/**
 * Returns the window for a request at `now`: the open one, or a new one. A request that is dated slightly before the
 * open window counts in it. Otherwise, a clock that is a little slow would double the rate limit.
 */
export function windowAt(window: Window | undefined, { windowMs }: Rule, now: number): Window {
  const open = window && Math.abs(now - window.startedAt) < windowMs;
  return open ? window : { startedAt: now, count: 0 };
}

export function rateLimitOf(window: Window, { limit, windowMs }: Rule, now: number): RateLimit {
  return {
    limit,
    remaining: Math.max(0, limit - window.count),
    resetMs: Math.min(windowMs, window.startedAt + windowMs - now),
  };
}

/** Returns the one of two windows that leaves less, or leaves nothing for longer; null if there is none. */
export function tighterOf<W extends RateLimit | null>(one: W, other: W): W {
  if (!one || !other) return one ?? other;
  const difference = one.remaining - other.remaining || other.resetMs - one.resetMs;
  return difference > 0 ? other : one;
}

/** Returns the seconds until the window closes, rounded up, for the headers. */
export function resetSeconds({ resetMs }: RateLimit): number {
  return Math.ceil(resetMs / 1000);
}

/** Takes one request from a window; null if none is left. */
export function take(window: Window, { limit }: Rule): Window | null {
  return window.count < limit ? { ...window, count: window.count + 1 } : null;
}

/** Number of hours of usage that the gate of a key stores, including the current one. */
export const USAGE_HOURS = 24;

export interface HourUsage {
  startsAt: number;
  /** Requests that counted against the rate limit. */
  requests: number;
  /** Requests beyond the rate limit, which got a 429. */
  refused: number;
  /** The highest number of requests in one window. */
  busiest: number;
}

/**
 * Adds requests to their hour. Updates `hours` in place if it has that hour.
 *
 * @param counts the requests to add; `busiest` is the number of requests in the window so far.
 * @returns the hours to store, at most 24, oldest first.
 */
export function countUsage(
  hours: HourUsage[],
  at: number,
  counts: Partial<Omit<HourUsage, "startsAt">>,
): HourUsage[] {
  const { requests = 0, refused = 0, busiest = 0 } = counts;
  const startsAt = Math.floor(at / HOUR_MS) * HOUR_MS;
  const hour = hours.find((known) => known.startsAt === startsAt);
  if (hour) {
    hour.requests += requests;
    hour.refused += refused;
    hour.busiest = Math.max(hour.busiest, busiest);
    return hours;
  }
  const all = [...hours, { startsAt, requests, refused, busiest }].sort(
    (a, b) => a.startsAt - b.startsAt,
  );
  return all.slice(-USAGE_HOURS);
}
