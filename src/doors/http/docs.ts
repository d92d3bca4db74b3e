import { Hono } from "hono";
import { answerHashed, policyOf, readAsset } from "./assets.ts";
import type { AppEnv } from "./context.ts";

/** What stands for the address of the API in documents that are made with the build (site/origin.ts). */
const ORIGIN = "https://origin.invalid";

/** A file of the page, whose name holds a hash of its content; one spelling for each. */
const HASHED = /^\/docs\/assets(\/[\w.-]+)+$/;

/** A file of the client that the docs offer; one spelling for each. */
const OF_CLIENT = /^\/docs\/client\/[\w-]+(\.[\w-]+)+$/;

/**
 * What is made with the build: OpenAPI, the docs page, the docs as text, and the checker of receivers.
 */
const DOCUMENTS: Record<string, string> = {
  "/openapi.json": "application/json",
  "/docs": "text/html; charset=utf-8",
  "/docs/check-receiver.mjs": "text/javascript; charset=utf-8",
  "/docs.md": "text/markdown; charset=utf-8",
  "/llms.txt": "text/plain; charset=utf-8",
};

/** What there is to read outside `/v1`. */
export const docs = new Hono<AppEnv>();

for (const [path, type] of Object.entries(DOCUMENTS))
  docs.get(path, async (c) => {
    const asset = await readAsset(c, path === "/docs" ? "/docs/index.html" : path);
    if (!asset) return c.notFound();
    const text = (await asset.text()).replaceAll(ORIGIN, new URL(c.req.url).origin);
    return new Response(text, { headers: { "Content-Type": type, ...policyOf(type) } });
  });

docs.get("/docs/assets/*", (c) => answerHashed(c, HASHED));

docs.get("/docs/client/*", async (c) => {
  const asset = OF_CLIENT.test(c.req.path) ? await readAsset(c, c.req.path) : null;
  if (!asset) return c.notFound();
  return new Response(asset.body, { headers: { "Content-Type": "text/plain; charset=utf-8" } });
});
