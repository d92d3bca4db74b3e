import type { OpenAPIHono } from "@hono/zod-openapi";
import type { Context } from "hono";
import type { AppEnv } from "./context.ts";

/**
 * The page runs the scripts of this deployment, and talks to it alone. Styles may stand in the page
 * itself: the reference and its editor insert theirs as they go.
 */
const PAGE_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self' 'unsafe-inline'",
  "img-src 'self' data:",
  "connect-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join("; ");

/** One spelling for each file. */
const FILE = /^(\/[\w.-]+)+$/;

/** Serves the docs page at `/docs`, and the files that it is made of below. */
export function serveDocs(app: OpenAPIHono<AppEnv>): void {
  app.get("/docs", (c) => answerAsset(c, "/docs/index.html"));
  app.get("/docs/*", (c) => (FILE.test(c.req.path) ? answerAsset(c, c.req.path) : c.notFound()));
}

/** The static file at `path`, whole, whatever the request's conditions; its headers are ours. */
async function answerAsset(c: Context<AppEnv>, path: string): Promise<Response> {
  const asset = await c.env.ASSETS.fetch(new URL(path, c.req.url));
  if (asset.status !== 200) {
    await asset.body?.cancel();
    return c.notFound();
  }
  return new Response(asset.body, {
    headers: {
      "Content-Type": asset.headers.get("Content-Type") ?? "application/octet-stream",
      "Content-Security-Policy": PAGE_POLICY,
      "Cross-Origin-Opener-Policy": "same-origin",
    },
  });
}
