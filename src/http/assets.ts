import type { Context } from "hono";
import type { AppEnv } from "./context.ts";

/** The policy of HTML pages: they may only load this deployment's scripts and styles, and connect to it. */
const PAGE_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

/** The headers of HTML pages and their files; other responses have the policy of the API. */
export const PAGE_HEADERS = {
  "Content-Security-Policy": PAGE_POLICY,
  "Cross-Origin-Opener-Policy": "same-origin",
};

/**
 * Responds with the file at the path of the request, if the path matches `hashed`. Its name contains a hash, so the
 * file is cacheable forever.
 */
export async function serveHashed(c: Context<AppEnv>, hashed: RegExp): Promise<Response> {
  const asset = hashed.test(c.req.path) ? await readAsset(c, c.req.path) : null;
  if (!asset) return c.notFound() as Response;
  c.set("immutable", true);
  const type = asset.headers.get("Content-Type") ?? "application/octet-stream";
  return new Response(asset.body, { headers: { "Content-Type": type, ...PAGE_HEADERS } });
}

/** Reads the whole static file at `path`, ignoring conditional headers; null if there is none. */
export async function readAsset(c: Context<AppEnv>, path: string): Promise<Response | null> {
  const asset = await c.env.ASSETS.fetch(new URL(path, c.req.url));
  if (asset.status === 200) return asset;
  await asset.body?.cancel();
  return null;
}
