import type { Context } from "hono";
import { createMiddleware } from "hono/factory";
import { ApiError } from "../contract/errors.ts";
import {
  BODY_COMMAS_MAX,
  BODY_MAX_BYTES,
  BODY_MAX_MS,
  BODY_NESTING_MAX,
} from "../contract/limits.ts";
import { withTimeout } from "../primitives/timing.ts";
import type { AppEnv } from "./context.ts";

const JSON_TYPE = /^application\/json[ \t]*(;.*)?$/i;

/**
 * Passes a body within the limits of `readBody` to the validator of the route, which would read one of any size. The
 * validator parses it, and throws an `HTTPException` if it is not JSON (`handleError`).
 *
 * @throws ApiError like `readBody`.
 */
export const jsonBody = createMiddleware<AppEnv>(async (c, next) => {
  c.req.raw = new Request(c.req.raw, { body: await readBody(c) });
  // The validator rejects whitespace before a parameter (RFC 9110, 8.3.1).
  c.req.raw.headers.set("Content-Type", "application/json");
  await next();
});

/** The limits of a request body. */
interface BodyLimits {
  bytes: number;
  commas: number;
}

const CLIENT_LIMITS: BodyLimits = { bytes: BODY_MAX_BYTES, commas: BODY_COMMAS_MAX };

/**
 * Reads the body of a request, up to a size and for at most ten seconds. A second call returns the same text.
 *
 * It is read before the admission. Otherwise, a client that sends its body slowly could write with a key or a session
 * that has expired in the meantime, which `guardWrites` does not check. The authentication leaves an error to the route,
 * which calls this function again, so that a refusal, or the 404 of a route that is not served, comes first.
 *
 * @throws ApiError `invalid_request` with 415, 413 or 400.
 */
export function readBody(c: Context<AppEnv>, limits = CLIENT_LIMITS): Promise<string> {
  const body = c.get("body") ?? receive(c.req.raw, limits);
  c.set("body", body);
  return body;
}

/** Parses the JSON of a body, for a route without a validator. @throws ApiError like `readBody`. */
export async function readJson(c: Context<AppEnv>, limits?: BodyLimits): Promise<unknown> {
  const text = await readBody(c, limits);
  try {
    return JSON.parse(text);
  } catch {
    throw notJson();
  }
}

async function receive({ headers, body }: Request, { bytes, commas }: BodyLimits): Promise<string> {
  const coding = headers.get("Content-Encoding") ?? "";
  if (!JSON_TYPE.test(headers.get("Content-Type") ?? "") || !/^(identity)?$/i.test(coding))
    throw new ApiError("invalid_request", { reason: "unsupported_media_type" }, 415);
  // This is checked before the stream is read, because a half-read stream may reset the connection without a response.
  if (Number(headers.get("Content-Length")) > bytes) throw tooLarge(bytes);
  const text = body ? await receiveInTime(body.getReader(), bytes) : "";
  const measured = measure(text);
  if (measured.nesting > BODY_NESTING_MAX) throw outOfRange(BODY_NESTING_MAX);
  if (measured.commas > commas) throw outOfRange(commas);
  return text;
}

type Reader = ReadableStreamDefaultReader<Uint8Array>;

function receiveInTime(reader: Reader, maxBytes: number): Promise<string> {
  return withTimeout(BODY_MAX_MS, receiveText(reader, maxBytes), () => {
    reader.cancel().catch(() => {});
    throw new ApiError("invalid_request", { reason: "body_too_slow" });
  });
}

/** Reads a stream of UTF-8, as JSON is (RFC 8259, 8.1), until it ends or is too large. */
async function receiveText(reader: Reader, maxBytes: number): Promise<string> {
  const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: false });
  let text = "";
  let bytes = 0;
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return text + decoder.decode();
      bytes += value.byteLength;
      if (bytes > maxBytes) throw tooLarge(maxBytes);
      text += decoder.decode(value, { stream: true });
    }
  } catch (error) {
    // Any other error means that it is not UTF-8, that the client has aborted, or that the framing is invalid.
    throw error instanceof ApiError ? error : notJson();
  } finally {
    // The rest can then be drained.
    reader.releaseLock();
  }
}

/** Maximum bytes of an unread body to drain, and how long to drain it. */
const UNREAD_BODY_MAX = { bytes: 1024 * 1024, ms: 1_000 } as const;

/**
 * Reads and discards what the handlers have left unread of a body. An HTTP/1.1 server must otherwise close the connection
 * after the response (RFC 9112, 9.3), and Node's `fetch` then lost 15 to 40 of 100 requests that came next, on the local
 * runtime.
 */
export const drainBody = createMiddleware<AppEnv>(async (c, next) => {
  // `jsonBody` replaces the request.
  const { body, headers } = c.req.raw;
  await next();
  // A handler that reads a body without `readBody` leaves it locked.
  if (!body || body.locked) return;
  if (Number(headers.get("Content-Length")) > UNREAD_BODY_MAX.bytes) return;
  const reader = body.getReader();
  const timer = setTimeout(() => reader.cancel().catch(() => {}), UNREAD_BODY_MAX.ms);
  try {
    for (let bytes = 0; bytes <= UNREAD_BODY_MAX.bytes; ) {
      const { done, value } = await reader.read();
      if (done) return;
      bytes += value.byteLength;
    }
  } catch {
    // The client has aborted, so there is no connection to keep.
  } finally {
    clearTimeout(timer);
  }
});

function tooLarge(max: number): ApiError {
  return new ApiError("invalid_request", { reason: "body_too_large", max }, 413);
}

function outOfRange(max: number): ApiError {
  return new ApiError("invalid_request", { reason: "out_of_range", max });
}

function notJson(): ApiError {
  return new ApiError("invalid_request", { reason: "invalid_json" });
}

/**
 * Measures how deep JSON is nested, and counts its commas, before it is parsed. Functions that check, copy or write a value
 * call themselves for each level, and would run out of stack. Commas bound the values, each of which may become an issue of
 * the schema.
 */
function measure(json: string): { nesting: number; commas: number } {
  let [nesting, depth, commas] = [0, 0, 0];
  for (let at = 0; at < json.length; at++) {
    const character = json[at];
    if (character === '"') at = endOfString(json, at);
    else if (character === ",") commas++;
    else if (character === "{" || character === "[") nesting = Math.max(nesting, ++depth);
    else if (character === "}" || character === "]") depth--;
  }
  return { nesting, commas };
}

/** Returns the position of the quotation mark that ends the string from `start` on, or the length of an unended one. */
function endOfString(json: string, start: number): number {
  let at = start + 1;
  while (at < json.length && json[at] !== '"') at += json[at] === "\\" ? 2 : 1;
  return at;
}
