import type { Context } from "hono";
import { createMiddleware } from "hono/factory";
import { matchedRoutes } from "hono/route";
import { ApiError } from "../contract/errors.ts";
import { BODY_MAX_BYTES, BODY_MAX_MS, BODY_NESTING_MAX } from "../contract/limits.ts";
import type { AppEnv, ReadBody } from "./context.ts";

const JSON_TYPE = /^application\/json[ \t]*(;.*)?$/i;

/**
 * Passes a JSON body within the limits of `readBody` to the validator of the route. It comes before the validator,
 * which would read a body of any size. The authentication has already called `readBody`.
 *
 * @throws ApiError `invalid_request` with 415, 413 or 400.
 */
export const jsonBody = createMiddleware<AppEnv>(async (c, next) => {
  const text = await readText(c);
  // Called only for its error. The validator parses the body again, but its own error is not in the form of this API.
  parseJson(text);
  const headers = new Headers(c.req.raw.headers);
  headers.set("Content-Type", "application/json");
  c.req.raw = new Request(c.req.raw, { headers, body: text });
  await next();
});

/** Whether the route of a request takes a body, which means that `jsonBody` is one of its handlers. */
export function takesBody(c: Context<AppEnv>): boolean {
  return matchedRoutes(c).some(({ handler }) => handler === jsonBody);
}

/**
 * Reads the body of a request, up to a size and for at most ten seconds. It is read before the admission. Otherwise, a
 * client that sends its body slowly could write with a key or a session that has ended in the meantime. An error is
 * stored and not thrown, because the admission and the route are checked first.
 */
export async function readBody(c: Context<AppEnv>, maxBytes = BODY_MAX_BYTES): Promise<ReadBody> {
  const body = c.get("body") ?? (await receive(c, maxBytes));
  c.set("body", body);
  return body;
}

/** Parses the JSON of a body, for a route without a validator. @throws like `jsonBody`. */
export async function readJson(c: Context<AppEnv>, maxBytes = BODY_MAX_BYTES): Promise<unknown> {
  return parseJson(await readText(c, maxBytes));
}

async function readText(c: Context<AppEnv>, maxBytes?: number): Promise<string> {
  const body = await readBody(c, maxBytes);
  if ("error" in body) throw body.error;
  return body.text;
}

async function receive(c: Context<AppEnv>, maxBytes: number): Promise<ReadBody> {
  const coding = c.req.header("Content-Encoding") ?? "";
  if (!JSON_TYPE.test(c.req.header("Content-Type") ?? "") || !/^(identity)?$/i.test(coding))
    return {
      error: new ApiError("invalid_request", { reason: "unsupported_media_type" }, 415),
    };
  // This is checked before the stream is read, because a half-read stream may reset the connection without a response.
  if (Number(c.req.header("Content-Length")) > maxBytes) return tooLarge(maxBytes);
  const { body: stream } = c.req.raw;
  if (stream === null) return { text: "" };
  const received = await receiveBounded(stream.getReader(), maxBytes);
  return received instanceof Uint8Array ? decode(received) : received;
}

function tooLarge(max: number): ReadBody {
  return { error: new ApiError("invalid_request", { reason: "body_too_large", max }, 413) };
}

function notJson(): ReadBody {
  return { error: new ApiError("invalid_request", { reason: "invalid_json" }) };
}

/** Reads a stream to its end. Stops reading one that is too large, and cancels one that is too slow. */
async function receiveBounded(
  reader: ReadableStreamDefaultReader<Uint8Array>,
  max: number,
): Promise<Uint8Array | ReadBody> {
  const late = Promise.withResolvers<"late">();
  const timer = setTimeout(() => late.resolve("late"), BODY_MAX_MS);
  const chunks: Uint8Array[] = [];
  let length = 0;
  try {
    for (;;) {
      const read = await Promise.race([reader.read(), late.promise]);
      if (read === "late") {
        reader.cancel().catch(() => {});
        return { error: new ApiError("invalid_request", { reason: "body_too_slow" }) };
      }
      if (read.done) return concatenate(chunks, length);
      length += read.value.byteLength;
      if (length > max) {
        reader.releaseLock();
        return tooLarge(max);
      }
      chunks.push(read.value);
    }
  } catch {
    // The client has aborted, or its framing is invalid.
    return notJson();
  } finally {
    clearTimeout(timer);
  }
}

function concatenate(chunks: Uint8Array[], length: number): Uint8Array {
  const bytes = new Uint8Array(length);
  let offset = 0;
  for (const chunk of chunks) {
    bytes.set(chunk, offset);
    offset += chunk.byteLength;
  }
  return bytes;
}

/** Decodes a JSON text, which is in UTF-8 (RFC 8259, 8.1). */
function decode(bytes: Uint8Array): ReadBody {
  try {
    return { text: new TextDecoder("utf-8", { fatal: true, ignoreBOM: false }).decode(bytes) };
  } catch {
    return notJson();
  }
}

function parseJson(text: string): unknown {
  if (isDeeper(text, BODY_NESTING_MAX))
    throw new ApiError("invalid_request", { reason: "out_of_range", max: BODY_NESTING_MAX });
  try {
    return JSON.parse(text);
  } catch {
    throw new ApiError("invalid_request", { reason: "invalid_json" });
  }
}

/**
 * Whether JSON is nested deeper than `max`. It is measured before it is parsed, because what checks, copies or writes a
 * value calls itself for each level, and would run out of stack.
 */
function isDeeper(json: string, max: number): boolean {
  let depth = 0;
  for (let at = 0; at < json.length; at++) {
    const character = json[at];
    if (character === '"') at = endOfString(json, at);
    else if (character === "{" || character === "[") depth++;
    else if (character === "}" || character === "]") depth--;
    if (depth > max) return true;
  }
  return false;
}

/** Returns the position of the quotation mark that ends the string from `start` on, or the length of an unended one. */
function endOfString(json: string, start: number): number {
  let at = start + 1;
  while (at < json.length && json[at] !== '"') at += json[at] === "\\" ? 2 : 1;
  return at;
}
