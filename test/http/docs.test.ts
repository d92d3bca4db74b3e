import { exports } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { ERRORS, REASONS } from "../../src/contract/errors.ts";
import { EVERY_ANSWER, figuresOf, refusal, send } from "../support/api.ts";

const NOT_FOUND = refusal(404, "route_not_found");

/** What the page may do: run and load what this deployment serves, and nothing else. */
const POLICY = {
  "default-src": "'none'",
  "script-src": "'self'",
  "style-src": "'self' 'unsafe-inline'",
  "img-src": "'self' data:",
  "connect-src": "'self'",
  "base-uri": "'none'",
  "form-action": "'none'",
  "frame-ancestors": "'none'",
};

async function fetchFile(path: string, init: RequestInit = {}) {
  const response = await exports.default.fetch(`https://api.example${path}`, init);
  const headers = Object.fromEntries(response.headers);
  return { status: response.status, headers, text: await response.text() };
}

function policyOf(headers: Record<string, string>) {
  const directives = headers["content-security-policy"]?.split("; ") ?? [];
  return Object.fromEntries(
    directives.map((directive) => [
      directive.slice(0, directive.indexOf(" ")),
      directive.slice(directive.indexOf(" ") + 1),
    ]),
  );
}

const SOME_HEADERS = {
  "cache-control": "no-store",
  "content-security-policy": expect.stringContaining("script-src 'self';"),
  "x-ratelimit-limit": "20",
};

describe("the docs page", () => {
  const files: [path: string, type: string, content: string][] = [
    ["/docs", "text/html; charset=utf-8", "/docs/page.js"],
    ["/docs/page.js", "text/javascript; charset=utf-8", "createApiReference"],
    ["/docs/page.css", "text/css; charset=utf-8", "#reference"],
    ["/docs/icon.svg", "image/svg+xml", "<svg"],
    ["/docs/check-receiver.mjs", "text/javascript; charset=utf-8", "X-Service-Test"],
    ["/docs/scalar/standalone.esm.js", "text/javascript; charset=utf-8", "createApiReference"],
  ];

  test.each(files)(
    "%s has its type, the headers of every answer and a strict policy",
    async (path, type, content) => {
      const { status, headers, text } = await fetchFile(path);
      expect(status).toBe(200);
      expect(text).toContain(content);
      expect(headers).toEqual({
        ...EVERY_ANSWER,
        "content-type": type,
        "content-security-policy": expect.any(String),
        "cross-origin-opener-policy": "same-origin",
      });
      expect(policyOf(headers)).toEqual(POLICY);
    },
  );

  test("holds no script, style or address of its own that the policy would refuse", async () => {
    const { text } = await fetchFile("/docs");
    expect(text).not.toMatch(/<script(?![^>]*src="\/docs\/)|<style|\sstyle=|\son[a-z]+=|https?:/);
  });

  test("answers whole whatever the request's conditions and ranges are", async () => {
    const plain = await fetchFile("/docs/page.css");
    for (const headers of [{ "If-None-Match": "*" }, { Range: "bytes=0-1" }]) {
      const { status, text } = await fetchFile("/docs/page.css", { headers });
      expect(status).toBe(200);
      expect(text).toBe(plain.text);
    }
  });

  test("answers HEAD as GET, without the body", async () => {
    for (const path of ["/docs", "/docs/page.js"]) {
      const head = await fetchFile(path, { method: "HEAD" });
      expect(head).toMatchObject({ status: 200, text: "", headers: SOME_HEADERS });
    }
  });

  test("charges no key and no address", async () => {
    const headers = { "CF-Connecting-IP": "198.19.0.1" };
    for (const path of ["/docs", "/docs/page.js", "/docs"]) await fetchFile(path, { headers });
    expect(figuresOf(await send("/", { headers })).remaining).toBe(20);
  });
});

describe("a path that is no file of the page", () => {
  test("is 404 in the error body", async () => {
    const paths = [
      "/docs/",
      "/docs/unknown.js",
      "/docs/scalar",
      "/docs/scalar/",
      "/docs/scalar/chunks",
      "/docs//page.js",
      "/docs/%ff",
      "/docs/%00",
      "/docs/..%2fpage.js",
      "/Docs",
      "/docsx",
      "/page.js",
      "/index.html",
      "/scalar/standalone.esm.js",
      "/.assetsignore",
    ];
    for (const path of paths) expect(await send(path), path).toEqual(NOT_FOUND);
  });

  test("is 404 for every method but GET and HEAD", async () => {
    for (const method of ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
      for (const path of ["/docs", "/docs/page.js"])
        expect(await send(path, { method }), `${method} ${path}`).toEqual(NOT_FOUND);
  });

  test("has the policy of the API, which allows nothing", async () => {
    const { headers } = await send("/docs/unknown.js");
    expect(headers["content-security-policy"]).toBe(EVERY_ANSWER["content-security-policy"]);
  });
});

describe("the introduction", () => {
  async function introduction(): Promise<string> {
    const { body } = await send<{ info: { description: string } }>("/openapi.json");
    return body.info.description;
  }

  test("explains what a client and a subscriber must know", async () => {
    expect((await introduction()).match(/^## .*$/gm)).toEqual([
      "## Authentication",
      "## Errors",
      "## Pagination",
      "## Quota",
      "## Versioning",
      "## Webhooks",
    ]);
  });

  test("lists every code with its statuses and its French message", async () => {
    const lines = (await introduction()).split("\n");
    for (const [code, { statuses, message }] of Object.entries(ERRORS))
      expect(lines).toContain(`| \`${code}\` | ${statuses.join(", ")} | ${message} |`);
  });

  test("lists every reason with its French message", async () => {
    const lines = (await introduction()).split("\n");
    for (const [reason, message] of Object.entries(REASONS))
      expect(lines).toContain(`| \`${reason}\` | ${message} |`);
  });

  test("tells the waits and limits that the deliveries keep", async () => {
    const text = await introduction();
    expect(text).toContain(
      "10 s, 1 min, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h and 24 h, each up to 20 % shorter or longer: 11 attempts in all",
    );
    expect(text).toContain("any 2xx within 10 seconds");
    expect(text).toContain("for 72 h and at least 10 times");
  });
});
