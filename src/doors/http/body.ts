import type { Context } from "hono";
import type * as z from "zod/mini";
import { ApiError, type ErrorDetails } from "../../contract/errors.ts";
import { BODY_MAX_BYTES } from "../../contract/limits.ts";
import type { AppEnv } from "./context.ts";

const JSON_TYPE = /^application\/json *(;.*)?$/i;

type Bodies = typeof import("../../contract/requests.ts");
type PortalBodies = typeof import("../../contract/portal.ts");

/**
 * Reads and parses the body of a request, whatever its `Content-Length` or encoding says.
 *
 * @param name the schema, one of the contract's requests.
 * @throws ApiError `invalid_request` with 415, 413 or 400.
 */
export async function readBody<N extends keyof Bodies>(
  c: Context<AppEnv>,
  name: N,
): Promise<z.output<Bodies[N]>> {
  const value = await readJson(c);
  // Loaded on first use: most requests have no body, and schemas would slow down startup.
  const schemas = await import("../../contract/requests.ts");
  return parseAs(schemas[name], value) as z.output<Bodies[N]>;
}

/** Like `readBody`, with a schema of the portal's requests. */
export async function readPortalBody<N extends keyof PortalBodies>(
  c: Context<AppEnv>,
  name: N,
): Promise<z.output<PortalBodies[N]>> {
  const value = await readJson(c);
  const schemas = await import("../../contract/portal.ts");
  return parseAs(schemas[name], value) as z.output<PortalBodies[N]>;
}

async function readJson(c: Context<AppEnv>): Promise<unknown> {
  if (!JSON_TYPE.test(c.req.header("Content-Type") ?? ""))
    throw new ApiError("invalid_request", { reason: "unsupported_media_type" }, 415);
  const body = await readBounded(c.req.raw.body);
  c.set("isBodyRead", true);
  return decode(body);
}

function parseAs(schema: z.ZodMiniType, value: unknown): unknown {
  const result = schema.safeParse(value);
  if (!result.success) throw new ApiError("invalid_request", toDetails(result.error, value));
  return result.data;
}

/** Reads a body up to the size limit; the rest of a larger one stays in the stream. */
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

/** The chunks of a body. If the sender aborts or uses invalid framing, it is the client's error. */
async function* chunksOf(stream: ReadableStream<Uint8Array> | null) {
  try {
    yield* stream?.values({ preventCancel: true }) ?? [];
  } catch {
    throw new ApiError("invalid_request", { reason: "invalid_json" });
  }
}

/** Parses a body as JSON in UTF-8 (RFC 8259, 8.1). */
function decode(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(new TextDecoder("utf-8", { fatal: true, ignoreBOM: false }).decode(bytes));
  } catch {
    throw new ApiError("invalid_request", { reason: "invalid_json" });
  }
}

/**
 * Turns a schema's error into the details of the contract's 400, which name the invalid property.
 */
function toDetails({ issues: [issue] }: z.core.$ZodError, input: unknown): ErrorDetails {
  if (!issue) throw new Error("zod reported no issue");
  const parameter = issue.path.join(".");
  const named = parameter === "" ? {} : { parameter };
  switch (issue.code) {
    case "unrecognized_keys":
      return {
        parameter: [...issue.path, issue.keys[0]].join("."),
        reason: "unknown_property",
      };
    case "too_small":
      return { ...named, reason: "out_of_range", min: Number(issue.minimum) };
    case "too_big":
      return { ...named, reason: "out_of_range", max: Number(issue.maximum) };
    case "invalid_value":
      if (typeof valueAt(issue.path, input) !== "string") break;
      return { ...named, reason: "unknown_value", allowed: issue.values.map(String) };
    case "custom":
      if (!issue.params?.reason) break;
      return { ...named, reason: issue.params.reason };
  }
  const isAbsent = valueAt(issue.path, input) === undefined;
  return { ...named, reason: isAbsent ? "required" : "invalid_type" };
}

function valueAt(path: PropertyKey[], input: unknown): unknown {
  return path.reduce(
    (parent: unknown, key) => (parent as Record<PropertyKey, unknown> | undefined)?.[key],
    input,
  );
}
