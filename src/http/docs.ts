import type { Context } from "hono";
import { BoundedMap } from "../primitives/bounded-map.ts";
import { PAGE_HEADERS, readAsset, serveHashed } from "./assets.ts";
import { type AppEnv, newApp } from "./context.ts";

/** Stands for the base URL of the API in files that are built ahead of time (site/origin.ts). */
const ORIGIN = "https://origin.invalid";

/** The variables that the docs show; `{{NAME}}` stands for one in files that are built ahead of time. */
const SHOWN_VARIABLES = [
  "QUOTA_REQUESTS",
  "QUOTA_WINDOW_SECONDS",
  "AUTH_FAILURES",
  "AUTH_FAILURE_WINDOW_SECONDS",
  "EVENTS_KEPT_DAYS",
  "EVENTS_KEPT_MAX",
  "ALLOW_LOCAL_WEBHOOKS",
  "SUPPORT_EMAIL",
  "SUPPORT_URL",
] as const satisfies (keyof Env)[];

/** The path of a page of the docs; only the canonical spelling matches. */
const PAGE = /^\/docs(\/changelog|\/reference(\/[a-z]+)?|\/guides\/[a-z-]+)?$/;

/** The path of a page of the docs as Markdown; `/docs/index.md` is the first one. */
const MARKDOWN = /^\/docs\/(index|changelog|reference(\/[a-z]+)?|guides\/[a-z-]+)\.md$/;

/** The path of a file that the pages load, with a hash in its name; only the canonical spelling matches. */
const HASHED = /^\/docs\/assets(\/[\w.-]+)+$/;

/** The path of a file of the client that the docs show; only the canonical spelling matches. */
const OF_CLIENT = /^\/docs\/client\/[\w-]+(\.[\w-]+)+$/;

/** The media types of the files that are built ahead of time. */
const DOCUMENTS: Record<string, string> = {
  "/sitemap.xml": "application/xml; charset=utf-8",
  "/openapi.json": "application/json",
  "/openapi-3.0.json": "application/json",
  "/docs/search.json": "application/json",
  "/docs/check-receiver.mjs": "text/javascript; charset=utf-8",
  "/docs.md": "text/markdown; charset=utf-8",
  "/llms.txt": "text/plain; charset=utf-8",
};

/** The page that a browser gets for a wrong address below `/docs`. */
const NOT_FOUND = "/docs/404.html";

const HTML = "text/html; charset=utf-8";

/** The headers of the OpenAPI document, which tools in a browser load from their own origin. */
const OPEN = { "Access-Control-Allow-Origin": "*" };

/** The links to the description of the API for programs, and to its documentation for people (RFC 8631). */
const SERVICE = [
  ["service-desc", "/openapi.json", "application/json"],
  ["service-doc", "/docs", "text/html"],
  ["service-doc", "/docs.md", "text/markdown"],
] as const;
const LINKS = SERVICE.map(([rel, path, type]) => `<${path}>; rel="${rel}"; type="${type}"`).join();

/** The public documents outside `/v1`. */
export const docs = newApp();

docs.get("/", (c, next) =>
  c.req.header("Accept")?.includes("text/html") ? c.redirect("/docs") : next(),
);

docs.get("/.well-known/api-catalog", (c) => {
  const { origin } = new URL(c.req.url);
  const links = Map.groupBy(SERVICE, ([rel]) => rel);
  const shown = [...links].map(([rel, all]) => [
    rel,
    all.map(([, path, type]) => ({ href: origin + path, type })),
  ]);
  const linkset = [{ anchor: `${origin}/v1`, ...Object.fromEntries(shown) }];
  return c.json({ linkset }, 200, {
    "Content-Type": 'application/linkset+json; profile="https://www.rfc-editor.org/info/rfc9727"',
    Link: '</.well-known/api-catalog>; rel="api-catalog"',
  });
});

for (const [path, type] of Object.entries(DOCUMENTS))
  docs.get(path, (c) => serveFilled(c, path, type));

docs.get("/docs/assets/*", (c) => serveHashed(c, HASHED));

docs.get("/docs/client/*", async (c) => {
  const asset = OF_CLIENT.test(c.req.path) ? await readAsset(c, c.req.path) : null;
  if (!asset) return c.notFound();
  return new Response(asset.body, { headers: { "Content-Type": "text/plain; charset=utf-8" } });
});

docs.get("/docs/*", async (c) => {
  const { path } = c.req;
  if (PAGE.test(path)) return serveFilled(c, `${path}.html`, HTML);
  if (MARKDOWN.test(path)) return serveFilled(c, path, "text/markdown; charset=utf-8");
  const canonical = path.replace(/\/+$/, "");
  if (canonical !== path && PAGE.test(canonical)) return c.redirect(canonical, 308);
  return serveMissing(c);
});

/** Responds with 404: a page for a browser, or the error body for a program. */
async function serveMissing(c: Context<AppEnv>): Promise<Response> {
  if (!c.req.header("Accept")?.includes("text/html")) return c.notFound() as Response;
  return serveFilled(c, NOT_FOUND, HTML, 404);
}

/** Maximum documents that an isolate caches, of 20 KB on average. */
const CACHED_MAX = 100;
/** The filled-in documents, by their URL and the values that were filled in. */
const filled = new BoundedMap<string>(CACHED_MAX);

/**
 * Responds with the file at `path`, with this deployment's base URL and variables in it. It is made once, because
 * anyone may request it, as often as they like.
 */
async function serveFilled(
  c: Context<AppEnv>,
  path: string,
  type: string,
  status = 200,
): Promise<Response> {
  const { origin } = new URL(c.req.url);
  const key = JSON.stringify([origin, path, ...SHOWN_VARIABLES.map((name) => c.env[name])]);
  const document = filled.get(key) ?? (await fill(c, path, origin));
  if (!document) return path === NOT_FOUND ? (c.notFound() as Response) : serveMissing(c);
  filled.set(key, document);
  const headers = {
    "Content-Type": type,
    ...(type.startsWith("text/html") && PAGE_HEADERS),
    ...(path.startsWith("/openapi") && OPEN),
    ...(path === "/docs.html" && { Link: LINKS }),
  };
  return new Response(document, { status, headers });
}

/** Reads a file, and fills in the base URL and the variables; null if there is none. */
async function fill(c: Context<AppEnv>, path: string, origin: string): Promise<string | null> {
  const asset = await readAsset(c, path);
  if (!asset) return null;
  // Functions, because `replaceAll` would interpret a `$` in a text.
  let text = (await asset.text()).replaceAll(ORIGIN, () => origin);
  for (const name of SHOWN_VARIABLES)
    text = text.replaceAll(`{{${name}}}`, () => shown(c.env[name]));
  return text;
}

/** Formats a variable for the docs, with its thousands separated. */
function shown(value: Env[(typeof SHOWN_VARIABLES)[number]] | undefined): string {
  return typeof value === "number" ? value.toLocaleString("en") : String(value ?? "");
}
