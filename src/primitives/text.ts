import { z } from "@hono/zod-openapi";

/** Text that every store and client can hold: no NUL, no lone surrogate. */
export function text(max: number) {
  return z.string().max(max).refine(isText, "must be well-formed text");
}

/** Whether every store and client can hold a string unchanged. */
export function isText(value: string): boolean {
  return value.isWellFormed() && !value.includes("\0");
}

/**
 * Control characters, which a terminal executes, and characters that reverse the text around them. The marks that
 * right-to-left scripts need, and joiners, are not included.
 */
const CONTROLS = /[\p{Cc}\u202a-\u202e\u2066-\u2069]/u;

/** Text that names or describes something. It has one line and no control characters, so it can be shown anywhere. */
export function label(max: number) {
  return text(max).refine((value) => !CONTROLS.test(value), "must have no control characters");
}

export const Name = label(1_000).min(1);

/** The platform's own id of a record. */
export const Reference = text(512).min(1);
