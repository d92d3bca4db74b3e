import { env, exports } from "cloudflare:workers";
import { expect, test, vi } from "vitest";
import {
  deployedWith,
  EVERY_ANSWER,
  fetchText,
  openWorkspace,
  refusal,
  send,
} from "../../support/api.ts";
import { HASHED_ANSWER, PAGE_ANSWER } from "../../support/portal.ts";

const NOT_FOUND = refusal(404, "route_not_found");
const PAGE = (await fetchText("/docs")).text;
const TEXT = (await fetchText("/docs.md")).text;
/** The files that the page loads, and those of the client, by the names that the docs use. */
const LOADED = [...new Set(PAGE.match(/\/docs\/assets\/[\w.-]+/g))];
const CLIENT = /\/docs\/client\/\{([^}]+)\}/.exec(TEXT)?.[1]?.split(",") ?? [];

const typed = (headers: object, type: string) => ({
  ...headers,
  "content-type": `${type}; charset=utf-8`,
});
const file = (type: string) => typed(EVERY_ANSWER, type);
const LOADED_HEADERS: Record<string, object> = {
  css: typed(HASHED_ANSWER, "text/css"),
  js: typed(HASHED_ANSWER, "text/javascript"),
  svg: { ...HASHED_ANSWER, "content-type": "image/svg+xml" },
};

test("the pattern for secret scanners finds a real key, wherever it stands", async () => {
  const { apiKey } = await openWorkspace();
  const [pattern = "none"] = /^key_live_\[.*$/m.exec(TEXT) ?? [];
  for (const line of [apiKey, `API_KEY=${apiKey}\n`, `{"authorization":"Bearer ${apiKey}"}`])
    expect(line.match(new RegExp(pattern, "g"))).toEqual([apiKey]);
  expect(TEXT.match(new RegExp(pattern, "g"))).toBeNull();
});

test.each<[path: string, headers: object, text?: string]>([
  [
    "/docs",
    { ...typed(PAGE_ANSWER, "text/html"), link: expect.stringContaining('rel="service-desc"') },
    "<h1>",
  ],
  ...["/docs/guides/limits", "/docs/reference/leads", "/docs/reference", "/docs/changelog"].map(
    (path): [string, object, string] => [path, typed(PAGE_ANSWER, "text/html"), "<h1>"],
  ),
  ["/docs/search.json", file("application/json")],
  ["/docs.md", file("text/markdown")],
  ["/docs/index.md", file("text/markdown"), "# Quickstart"],
  ["/docs/guides/limits.md", file("text/markdown"), "# Limits"],
  ["/docs/changelog.md", file("text/markdown"), "# Changelog"],
  ["/docs/reference.md", file("text/markdown"), "# Reference"],
  ["/docs/reference/leads.md", file("text/markdown"), "GET /v1/leads"],
  ["/sitemap.xml", file("application/xml"), "<loc>https://api.example/docs/guides/limits</loc>"],
  ["/llms.txt", file("text/plain"), "- [Limits](https://api.example/docs/guides/limits.md)"],
  ["/docs/check-receiver.mjs", file("text/javascript"), "X-Service-Test"],
  ...CLIENT.map((name): [string, object] => [`/docs/client/${name}`, file("text/plain")]),
  ...LOADED.map((path): [string, object] => [path, LOADED_HEADERS[path.split(".")[1] ?? ""] ?? {}]),
])(
  "%s has its type, the common headers and a strict policy, for HEAD too",
  async (path, headers, contained = "") => {
    const { text, ...answer } = await fetchText(path);
    expect(answer).toEqual({ status: 200, headers });
    expect(text).toContain(contained);
    expect(await fetchText(path, { method: "HEAD" })).toEqual({ status: 200, headers, text: "" });
  },
);

test("the files of the docs' pages are named after their contents", async () => {
  for (const path of LOADED) {
    const bytes = new TextEncoder().encode((await fetchText(path)).text);
    const hash = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes)).toHex();
    expect(path).toContain(`-${hash.slice(0, 12)}.`);
  }
});

test("a file is returned whole, whatever the request's conditions and ranges", async () => {
  const [path = ""] = LOADED;
  const plain = await fetchText(path);
  for (const headers of [{ "If-None-Match": "*" }, { Range: "bytes=0-1" }])
    expect(await fetchText(path, { headers })).toMatchObject({ status: 200, text: plain.text });
});

test("/ shows the docs to a browser, and nothing to a program", async () => {
  const shown = await send("/", { headers: { Accept: "text/html,*/*" }, redirect: "manual" });
  expect(shown).toMatchObject({ status: 302, headers: { location: "/docs" } });
  expect(await send("/")).toMatchObject({ status: 404 });
});

test("/.well-known/api-catalog links the description and the documentation (RFC 9727)", async () => {
  const { status, headers, body } = await send<object>("/.well-known/api-catalog");
  expect(status).toBe(200);
  expect(headers["content-type"]).toMatch(/^application\/linkset\+json; profile=/);
  expect(headers.link).toBe('</.well-known/api-catalog>; rel="api-catalog"');
  const at = (path: string) => expect.objectContaining({ href: `https://api.example${path}` });
  expect(body).toEqual({
    linkset: [
      {
        anchor: "https://api.example/v1",
        "service-desc": [at("/openapi.json")],
        "service-doc": [at("/docs"), at("/docs.md")],
      },
    ],
  });
});

test.each([
  "/docs",
  "/docs/guides/testing",
  "/docs/search.json",
  "/docs.md",
  "/llms.txt",
  "/openapi.json",
  "/openapi-3.0.json",
])("%s contains the address that it is read from", async (path) => {
  for (const host of ["api.example", "staging.example"]) {
    const read = ({ url }: Request) => exports.default.fetch(url.replace("api.example", host));
    const { text } = await fetchText(path, {}, read);
    expect(text).toMatch(new RegExp(`https://${host}["/\`]`));
    expect(text).not.toContain("origin.invalid");
  }
});

test.each(["/docs/guides/rate-limits", "/docs/search.json", "/docs.md"])(
  "%s shows the rate limits of its deployment",
  async (path) => {
    const quotas = { QUOTA_REQUESTS: 1234, QUOTA_WINDOW_SECONDS: 56 };
    const failures = { AUTH_FAILURES: 78, AUTH_FAILURE_WINDOW_SECONDS: 910 };
    const { text } = await fetchText(path, {}, deployedWith({ ...quotas, ...failures }));
    expect(text).toContain("1,234 requests every 56 s");
    expect(text).toContain("authenticate 78 times in 910 s");
    expect(text).not.toMatch(/\{\{[A-Z_]+\}\}/);
  },
);

test.each(["/docs", "/docs/guides/support", "/docs/guides/support.md", "/openapi.json"])(
  "%s names the support of the deployment",
  async (path) => {
    const url = "https://agence.fr/aide?$$1";
    const support = { SUPPORT_EMAIL: "aide@agence.fr", SUPPORT_URL: url };
    const { text } = await fetchText(path, {}, deployedWith(support));
    expect(text).toContain("aide@agence.fr");
    expect(text).not.toContain("api@example.com");
    if (path !== "/docs") expect(text).toContain(url);
  },
);

test.each(["true", ""])(
  "the form that subscribes knows whether local URLs are allowed: %j",
  async (local) => {
    const deployed = deployedWith({ ALLOW_LOCAL_WEBHOOKS: local });
    const { text } = await fetchText("/docs/reference/webhooks", {}, deployed);
    expect(text).toContain(`data-lenient="${local}"`);
  },
);

test.each([
  ...["/docs.html", "/docs/guides", "/docs/guides/unknown", "/docs/guides/limits.html"],
  ...["/docs/404", "/docs/404.html", "/docs/guides/unknown.md"],
  ...["/docs/guides/..%2fchangelog", "/.assetsignore", "/docs/assets/", "/docs/assets/%ff"],
  ...["/docs/client/unknown.ts", "/docs/client/..%2fchangelog.html", "POST /docs"],
  ...["PUT /docs.md", "OPTIONS /openapi.json", "PATCH /docs/client/client.ts"],
])(
  "a path that is not a file, or a method other than GET and HEAD, is 404: %s",
  async (request) => {
    const [path = "", method = "GET"] = request.split(" ").toReversed();
    expect(await send(path, { method })).toEqual(NOT_FOUND);
  },
);

test.each(["/docs/", "/docs/guides/limits/", "/docs/reference//"])(
  "a trailing slash leads to the page: %s",
  async (path) => {
    expect(await send(path, { redirect: "manual" })).toMatchObject({
      status: 308,
      headers: { location: path.replace(/\/+$/, "") },
    });
  },
);

test.each(["/docs/guides/unknown", "/docs/unknown/", "/docs/guides/unknown.md"])(
  "a browser gets a page with status 404 for a wrong address of the docs: %s",
  async (path) => {
    const { status, headers, text } = await fetchText(path, {
      headers: { Accept: "text/html,*/*" },
    });
    expect({ status, headers }).toEqual({ status: 404, headers: typed(PAGE_ANSWER, "text/html") });
    expect(text).toMatch(/Page not found.*<a href="\/docs\/guides\/troubleshooting">/s);
  },
);

test("the docs as text have the whole client", async () => {
  expect(CLIENT).toEqual(expect.arrayContaining(["README.md", "package.json", "client.ts"]));
  for (const name of CLIENT.filter((name) => name.endsWith(".ts"))) {
    const { text } = await fetchText(`/docs/client/${name}`);
    expect(TEXT).toContain(`#### ${name}\n\n\`\`\`ts\n${text}`);
  }
});

test.each(["/docs.md", "/openapi.json", "/docs/guides/limits"])(
  "%s is made once, however often it is requested",
  async (path) => {
    const read = vi.fn(env.ASSETS.fetch.bind(env.ASSETS));
    const deployed = deployedWith({ ASSETS: { fetch: read } as never, SUPPORT_EMAIL: path });
    const responses = [await fetchText(path, {}, deployed), await fetchText(path, {}, deployed)];
    expect(read).toHaveBeenCalledTimes(1);
    expect(responses[1]?.text).toBe(responses[0]?.text);
  },
);

test("an isolate forgets the pages that were requested longest ago, beyond a hundred", async () => {
  const read = vi.fn(env.ASSETS.fetch.bind(env.ASSETS));
  const request = (SUPPORT_EMAIL: string) =>
    fetchText(
      "/docs/none",
      { headers: { Accept: "text/html" } },
      deployedWith({ ASSETS: { fetch: read } as never, SUPPORT_EMAIL }),
    );
  const readsOf = async (name: string) => {
    const before = read.mock.calls.length;
    await request(name);
    return read.mock.calls.length - before;
  };
  for (let i = 0; i < 100; i++) await request(`${i}@example.com`);
  for (const i of [0, 100]) await request(`${i}@example.com`);
  for (const [i, reads] of [
    [0, 0],
    [2, 0],
    [1, 1],
  ])
    expect(await readsOf(`${i}@example.com`)).toBe(reads);
});
