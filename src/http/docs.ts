import { answerHashed, policyOf, readAsset } from "./assets.ts";
import { newApp } from "./context.ts";

/** Stands for the API's address in files that are built ahead of time (site/origin.ts). */
const ORIGIN = "https://origin.invalid";

/** Variables that the docs show; `{{NAME}}` stands for one in files built ahead of time. */
const SHOWN = [
  "QUOTA_REQUESTS",
  "QUOTA_WINDOW_SECONDS",
  "AUTH_FAILURES",
  "AUTH_FAILURE_WINDOW_SECONDS",
  "ALLOW_LOCAL_WEBHOOKS",
] as const satisfies (keyof Env)[];

/** A file of the docs page, with a hash in its name; only the canonical spelling matches. */
const HASHED = /^\/docs\/assets(\/[\w.-]+)+$/;

/** A file of the client shown in the docs; only the canonical spelling matches. */
const OF_CLIENT = /^\/docs\/client\/[\w-]+(\.[\w-]+)+$/;

/** Files that are built ahead of time. */
const DOCUMENTS: Record<string, string> = {
  "/openapi.json": "application/json",
  "/docs": "text/html; charset=utf-8",
  "/docs/check-receiver.mjs": "text/javascript; charset=utf-8",
  "/docs.md": "text/markdown; charset=utf-8",
  "/llms.txt": "text/plain; charset=utf-8",
};

/** Tools that run in a browser load the OpenAPI document from their own origin. */
const OPEN = { "Access-Control-Allow-Origin": "*" };

/** The public documents outside `/v1`. */
export const docs = newApp();

for (const [path, type] of Object.entries(DOCUMENTS))
  docs.get(path, async (c) => {
    const asset = await readAsset(c, path === "/docs" ? "/docs/index.html" : path);
    if (!asset) return c.notFound();
    let text = (await asset.text()).replaceAll(ORIGIN, new URL(c.req.url).origin);
    for (const name of SHOWN) text = text.replaceAll(`{{${name}}}`, String(c.env[name] ?? ""));
    const headers = {
      "Content-Type": type,
      ...policyOf(type),
      ...(path === "/openapi.json" && OPEN),
    };
    return new Response(text, { headers });
  });

docs.get("/docs/assets/*", (c) => answerHashed(c, HASHED));

docs.get("/docs/client/*", async (c) => {
  const asset = OF_CLIENT.test(c.req.path) ? await readAsset(c, c.req.path) : null;
  if (!asset) return c.notFound();
  return new Response(asset.body, { headers: { "Content-Type": "text/plain; charset=utf-8" } });
});
