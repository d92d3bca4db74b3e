import { createMiddleware } from "hono/factory";
import { ApiError } from "../contract/errors.ts";
import { BODY_MAX_BYTES } from "../contract/limits.ts";
import type { AppEnv } from "./context.ts";

const JSON_TYPE = /^application\/json *(;.*)?$/i;

/**
 * Reads the body of a request that must be JSON, whatever its length says and however it comes, and
 * hands on a request that holds it: validators find well-formed JSON of bounded size.
 *
 * @throws ApiError `invalid_request` with 415, 413 or 400.
 */
export const jsonBody = createMiddleware<AppEnv>(async (c, next) => {
  if (!JSON_TYPE.test(c.req.header("Content-Type") ?? ""))
    throw new ApiError("invalid_request", { reason: "unsupported_media_type" }, 415);
  const text = decode(await readBounded(c.req.raw.body));
  c.req.raw = new Request(c.req.raw, {
    body: text,
    headers: { "Content-Type": "application/json" },
  });
  await next();
});

async function readBounded(stream: ReadableStream<Uint8Array> | null): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let length = 0;
  for await (const chunk of chunksOf(stream)) {
    length += chunk.byteLength;
    if (length > BODY_MAX_BYTES)
      throw new ApiError("invalid_request", { reason: "body_too_large", max: BODY_MAX_BYTES }, 413);
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

/** The chunks of a body. A sender that breaks off or frames them badly is at fault, not we. */
async function* chunksOf(stream: ReadableStream<Uint8Array> | null) {
  try {
    yield* stream ?? [];
  } catch {
    throw new ApiError("invalid_request", { reason: "invalid_json" });
  }
}

/** The text of a body that is JSON in UTF-8 (RFC 8259, 8.1). */
function decode(bytes: Uint8Array): string {
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: false }).decode(bytes);
    JSON.parse(text);
    return text;
  } catch {
    throw new ApiError("invalid_request", { reason: "invalid_json" });
  }
}
