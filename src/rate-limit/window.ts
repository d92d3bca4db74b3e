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

/** Returns the seconds until the window closes, rounded up, for the headers. */
export function resetSeconds({ resetMs }: RateLimit): number {
  return Math.ceil(resetMs / 1000);
}

/** Takes one request from a window; null if none is left. */
export function take(window: Window, { limit }: Rule): Window | null {
  return window.count < limit ? { ...window, count: window.count + 1 } : null;
}
