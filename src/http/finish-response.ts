import type { Context, ErrorHandler, NotFoundHandler } from "hono";
import { createMiddleware } from "hono/factory";
import { HTTPException } from "hono/http-exception";
import { matchedRoutes } from "hono/route";
import { ApiError, helpFor } from "../contract/errors.ts";
import { InputError, toApiError } from "../contract/input.ts";
import { READ_MAX_MS } from "../contract/limits.ts";
import { causeOf, isMoving, isTemporary, TemporaryError } from "../db/errors.ts";
import { log, logError } from "../log.ts";
import { withTimeout } from "../primitives/timing.ts";
import { resetSeconds } from "../rate-limit/window.ts";
import { addressWindow } from "./authentication.ts";
import type { AppEnv } from "./context.ts";

/** The default policy, which allows no framing, and loads and runs nothing. HTML pages have their own. */
const API_POLICY = "default-src 'none'; frame-ancestors 'none'";

const SECURITY_HEADERS = [
  ["Referrer-Policy", "no-referrer"],
  ["Strict-Transport-Security", "max-age=31536000; includeSubDomains"],
  ["X-Content-Type-Options", "nosniff"],
] as const;

const RAY = /^[0-9a-f]{16}(-[A-Z]{3})?$/;

const isExact = ({ path }: { path: string }) => !path.endsWith("*");

/** Adds the headers of the contract to every response, and logs the request. */
export const finishResponse = createMiddleware<AppEnv>(async (c, next) => {
  const startedAt = Date.now();
  const ray = c.req.header("CF-Ray") ?? "";
  // Only Cloudflare's own format is accepted, so that no text of a client gets into the log.
  const requestId = RAY.test(ray) ? ray : crypto.randomUUID();
  c.set("requestId", requestId);
  await next();
  const { headers } = c.res;
  headers.set("X-Request-Id", requestId);
  if (c.get("immutable")) {
    headers.set("Cache-Control", "public, max-age=31536000, immutable");
  } else {
    headers.set("Cache-Control", "no-store");
    // The response to a tool call of MCP has those of the route that it called (`callTool` in mcp.ts).
    if (!headers.has("X-RateLimit-Limit")) setRateLimit(headers, c);
  }
  // Some clients, such as Windows PowerShell 5.1, read JSON as Latin-1 unless the charset is named.
  if (headers.get("Content-Type") === "application/json")
    headers.set("Content-Type", "application/json; charset=utf-8");
  // A 401 must have this header (RFC 9110, 11.6.1). It is the same for every problem with the key.
  if (c.res.status === 401) headers.set("WWW-Authenticate", "Bearer");
  for (const [name, value] of SECURITY_HEADERS) headers.set(name, value);
  if (!headers.has("Content-Security-Policy")) headers.set("Content-Security-Policy", API_POLICY);
  log("request", {
    requestId,
    method: c.req.method,
    // The route of the request, rather than a wildcard that also matches it, such as that of a middleware.
    route: matchedRoutes(c).findLast(isExact)?.path ?? matchedRoutes(c).at(-1)?.path,
    operation: c.get("operation"),
    webhookId: c.get("webhookId"),
    eventId: c.get("eventId"),
    status: c.res.status,
    durationMs: Date.now() - startedAt,
    workspaceId: c.get("workspaceId"),
    keyId: c.get("keyId"),
    address: c.get("address"),
    agent: agentFamily(c.req.header("User-Agent")),
  });
});

/** Sets the headers of the key's window or, without a key, of the failure window of the IP address. */
function setRateLimit(headers: Headers, c: Context<AppEnv>): void {
  const rateLimit = c.get("rateLimit") ?? addressWindow(c);
  headers.set("X-RateLimit-Limit", String(rateLimit.limit));
  headers.set("X-RateLimit-Remaining", String(rateLimit.remaining));
  headers.set("X-RateLimit-Reset", String(resetSeconds(rateLimit)));
  const { QUOTA_WINDOW_SECONDS, AUTH_FAILURE_WINDOW_SECONDS } = c.env;
  // A key and its window are set together (`setIdentity`).
  const windowSeconds = c.get("keyId") ? QUOTA_WINDOW_SECONDS : AUTH_FAILURE_WINDOW_SECONDS;
  // draft-ietf-httpapi-ratelimit-headers-11
  headers.set("RateLimit-Policy", `"default";q=${rateLimit.limit};w=${windowSeconds}`);
  headers.set("RateLimit", `"default";r=${rateLimit.remaining};t=${resetSeconds(rateLimit)}`);
}

/**
 * Responds to a read that takes longer than ten seconds with an error, after which its client may repeat it. The route
 * goes on. Its response is dropped, but an error of it is still logged. A write is not ended, because its client must learn
 * whether it has happened.
 */
export const endSlowReads = createMiddleware<AppEnv>(async (c, next) => {
  if (c.req.method !== "GET" && c.req.method !== "HEAD") return next();
  await withTimeout(READ_MAX_MS, next(), () => {
    throw new TemporaryError("the read took too long");
  });
});

/** The delay after which a client may retry a request that failed with a transient error. */
export const RETRY_AFTER_SECONDS = 5;

/**
 * Responds to any thrown error with the error body of the contract. Hono calls this where the error was thrown, keeps it as
 * `c.error`, and lets the middleware before go on with the response. If one of these throws an error, too, its response
 * replaces the first (`readEarly` in authentication.ts).
 */
export const handleError: ErrorHandler<AppEnv> = (thrown, c) => {
  const cause = causeOf(thrown);
  const error = cause instanceof InputError ? toApiError(cause) : cause;
  if (error instanceof ApiError) return toResponse(error, c);
  // Hono's validator throws it if a body is not JSON.
  if (error instanceof HTTPException)
    return toResponse(new ApiError("invalid_request", { reason: "invalid_json" }), c);
  // A write that fails during a move is not logged, because the move is announced.
  if (!isMoving(error)) logError("request_failed", error, { requestId: c.get("requestId") });
  const later = isTemporary(error) ? { retry_after_seconds: RETRY_AFTER_SECONDS } : {};
  return toResponse(new ApiError("internal_error", later), c);
};

function toResponse(error: ApiError, c: Context<AppEnv>): Response {
  // A refusal may replace the 400 of a route (`readEarly`). Hono would keep the headers of the 400.
  if (c.finalized) c.res = undefined;
  const { retry_after_seconds: seconds } = error.details;
  const headers: Record<string, string> = { Link: `<${helpFor(error.code)}>; rel="help"` };
  if (seconds !== undefined) headers["Retry-After"] = String(seconds);
  return c.json(error.toBody(), error.status, headers);
}

/** Responds with 404 to an unknown path or method, and never with 405. */
export const handleNotFound: NotFoundHandler<AppEnv> = (c) =>
  handleError(new ApiError("route_not_found"), c);

/** Patterns of the `User-Agent` of common clients, with their names in the log. */
const FAMILIES: [pattern: RegExp, family: string][] = [
  [/^curl/i, "curl"],
  [/^wget/i, "wget"],
  [/^(python|aiohttp)/i, "python"],
  [/^(node|undici|axios|got|deno|bun)\b/i, "javascript"],
  [/^(guzzle|php|symfony)/i, "php"],
  [/^go-http-client/i, "go"],
  [/^(java|okhttp|apache-httpclient)/i, "java"],
  [/^(ruby|faraday|rest-client)/i, "ruby"],
  [/^(postman|insomnia|bruno|httpie)/i, "api tool"],
  [/zapier/i, "zapier"],
  [/^make\/|integromat/i, "make"],
  [/n8n/i, "n8n"],
  [/^mozilla/i, "browser"],
];

/** Returns the family of the client that sent a `User-Agent`. A log line has no text that a client sent. */
export function agentFamily(userAgent: string | undefined): string {
  if (!userAgent) return "none";
  return FAMILIES.find(([pattern]) => pattern.test(userAgent))?.[1] ?? "other";
}
