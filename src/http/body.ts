import type { Context } from "hono";
import { createMiddleware } from "hono/factory";
import { ApiError } from "../contract/errors.ts";
import { BODY_MAX_BYTES } from "../contract/limits.ts";
import type { AppEnv } from "./context.ts";

const JSON_TYPE = /^application\/json[ \t]*(;.*)?$/i;

/**
 * Comes before the validator of a body, which would read all of it: limits its size, whatever its
 * `Content-Length` or encoding says, and admits only JSON that is not compressed.
 *
 * @throws ApiError `invalid_request` with 415, 413 or 400.
 */
export const jsonBody = createMiddleware<AppEnv>(async (c, next) => {
  const text = await readText(c);
  parseJson(text);
  const headers = new Headers(c.req.raw.headers);
  headers.set("Content-Type", "application/json");
  c.req.raw = new Request(c.req.raw, { headers, body: text });
  await next();
});

/** The body of a request, for a route without a validator. @throws like `jsonBody`. */
export async function readJson(c: Context<AppEnv>, maxBytes = BODY_MAX_BYTES): Promise<unknown> {
  return parseJson(await readText(c, maxBytes));
}

async function readText(c: Context<AppEnv>, maxBytes = BODY_MAX_BYTES): Promise<string> {
  const coding = c.req.header("Content-Encoding") ?? "";
  if (!JSON_TYPE.test(c.req.header("Content-Type") ?? "") || !/^(identity)?$/i.test(coding))
    throw new ApiError("invalid_request", { reason: "unsupported_media_type" }, 415);
  // Before the stream is touched: if it is left half read, the connection may be reset without an answer.
  if (Number(c.req.header("Content-Length")) > maxBytes) throw tooLarge(maxBytes);
  const body = await readBounded(c.req.raw.body, maxBytes);
  c.set("isBodyRead", true);
  return decode(body);
}

function tooLarge(max: number) {
  return new ApiError("invalid_request", { reason: "body_too_large", max }, 413);
}

/** Reads a body up to the size limit; the rest of a larger one stays in the stream. */
async function readBounded(
  stream: ReadableStream<Uint8Array> | null,
  max: number,
): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of chunksOf(stream)) {
    length += chunk.byteLength;
    if (length > max) throw tooLarge(max);
    chunks.push(chunk);
  }
  const body = new Uint8Array(length);
  let offset = 0;
  for (const chunk of chunks) {
    body.set(chunk, offset);
    offset += chunk.byteLength;
  }
  return body;
}

/** The chunks of a body. If the sender aborts or uses invalid framing, it is the client's error. */
async function* chunksOf(stream: ReadableStream<Uint8Array> | null) {
  try {
    yield* stream?.values({ preventCancel: true }) ?? [];
  } catch {
    throw new ApiError("invalid_request", { reason: "invalid_json" });
  }
}

/** JSON is in UTF-8 (RFC 8259, 8.1). */
function decode(bytes: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: false }).decode(bytes);
  } catch {
    throw new ApiError("invalid_request", { reason: "invalid_json" });
  }
}

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new ApiError("invalid_request", { reason: "invalid_json" });
  }
}
