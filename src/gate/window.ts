/** A fixed window: opened by its first request, closed `windowMs` later. */
export interface Window {
  /** Unix milliseconds. */
  startedAt: number;
  count: number;
}

/** How many requests a window admits, and its length. */
export interface Rule {
  limit: number;
  windowMs: number;
}

/** What the answer's headers tell of a window. */
export interface Figures {
  limit: number;
  remaining: number;
  /** Milliseconds until the window closes. */
  resetMs: number;
}

/**
 * The window that a request at `now` falls into: the open one, or a new one. A request from shortly
 * before the open one counts in it, or a clock that is a little behind would give the quota twice.
 */
export function windowAt(window: Window | undefined, { windowMs }: Rule, now: number): Window {
  const open = window && Math.abs(now - window.startedAt) < windowMs;
  return open ? window : { startedAt: now, count: 0 };
}

/** What is left of a window. */
export function figuresOf(window: Window, { limit, windowMs }: Rule, now: number): Figures {
  return {
    limit,
    remaining: Math.max(0, limit - window.count),
    resetMs: Math.min(windowMs, window.startedAt + windowMs - now),
  };
}

/** What the headers tell: whole seconds until the window closes, rounded up. */
export function resetSeconds({ resetMs }: Figures): number {
  return Math.ceil(resetMs / 1000);
}

/** Takes one request from a window that has one left; `null` when it has none. */
export function take(window: Window, { limit }: Rule): Window | null {
  return window.count < limit ? { ...window, count: window.count + 1 } : null;
}
