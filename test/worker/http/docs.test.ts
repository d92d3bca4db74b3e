import { env, exports } from "cloudflare:workers";
import { describe, expect, test, vi } from "vitest";
import { deployedWith, EVERY_ANSWER, refusal, send } from "../../support/api.ts";

const NOT_FOUND = refusal(404, "route_not_found");

/** The page's policy: it may run and load what this deployment serves, and nothing else. */
const POLICY = {
  "default-src": "'none'",
  "script-src": "'self'",
  "style-src": "'self'",
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

/** The files that the page loads, by the names it uses. */
async function loadedFiles(): Promise<string[]> {
  const { text } = await fetchFile("/docs");
  return [...new Set(text.match(/\/docs\/assets\/[\w.-]+/g))];
}

const { "content-security-policy": _, ...HEADERS } = EVERY_ANSWER;
const PAGE_HEADERS = {
  ...HEADERS,
  "content-security-policy": expect.stringContaining("script-src 'self';"),
  "cross-origin-opener-policy": "same-origin",
};
/** The headers of an immutable file: they say nothing about the client's quota. */
const FILE_HEADERS = {
  ...Object.fromEntries(
    Object.entries(PAGE_HEADERS).filter(([name]) => !name.startsWith("x-ratelimit-")),
  ),
  "cache-control": "public, max-age=31536000, immutable",
};

/** A file of which no copy is kept. */
const file = (type: string) => ({
  status: 200,
  headers: { ...EVERY_ANSWER, "content-type": `${type}; charset=utf-8` },
});

describe("the docs page", () => {
  test("has its content type, the common headers and a strict policy", async () => {
    const { status, headers, text } = await fetchFile("/docs");
    expect(status).toBe(200);
    expect(text).toContain("<h1>");
    expect(headers).toEqual({ ...PAGE_HEADERS, "content-type": "text/html; charset=utf-8" });
    expect(policyOf(headers)).toEqual(POLICY);
  });

  test("loads three files with hashed names, which browsers may cache for ever", async () => {
    const types: Record<string, string> = {
      svg: "image/svg+xml",
      css: "text/css; charset=utf-8",
      js: "text/javascript; charset=utf-8",
    };
    const files = await loadedFiles();
    expect(files.map((file) => file.split(".").at(-1)).toSorted()).toEqual(["css", "js", "svg"]);
    for (const path of files) {
      expect(path).toMatch(/-[0-9a-f]{12}\.(svg|css|js)$/);
      const { status, headers, text } = await fetchFile(path);
      const type = types[path.split(".").at(-1) ?? ""];
      expect({ status, headers }, path).toEqual({
        status: 200,
        headers: { ...FILE_HEADERS, "content-type": type },
      });
      const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(text));
      const hex = [...new Uint8Array(digest)].map((byte) => byte.toString(16).padStart(2, "0"));
      expect(path).toContain(hex.join("").slice(0, 12));
    }
  });

  test("calls no Durable Object for its files", async () => {
    const getByName = vi.fn(() => env.ADDRESS_GATE.getByName("of nobody"));
    const fetch = deployedWith({ ADDRESS_GATE: { getByName } as unknown as Env["ADDRESS_GATE"] });
    for (const path of [...(await loadedFiles()), "/docs"]) {
      const response = await fetch(new Request(`https://api.example${path}`));
      expect(response.status).toBe(200);
      await response.body?.cancel();
      expect(getByName).toHaveBeenCalledTimes(path === "/docs" ? 1 : 0);
    }
  });

  test("contains no script, style or address that its policy would block", async () => {
    const { text } = await fetchFile("/docs");
    expect(text).not.toMatch(/<script(?![^>]*src="\/docs\/)|<style|\sstyle=|\son[a-z]+="/);
    expect(text).not.toMatch(/(src|href)="https?:\/\/(?!www\.standardwebhooks\.com)/);
  });

  test("contains the address it is read from", async () => {
    for (const path of ["/docs", "/docs.md", "/llms.txt", "/openapi.json"]) {
      const { text } = await fetchFile(path);
      expect(/https:\/\/api\.example["/`]/.test(text), path).toBe(true);
      expect(text.includes("origin.invalid"), path).toBe(false);
    }
  });

  test("tells the quotas of this deployment, and which rules it does not apply", async () => {
    const quotas = { QUOTA_REQUESTS: 1234, QUOTA_WINDOW_SECONDS: 56 };
    const failures = { AUTH_FAILURES: 78, AUTH_FAILURE_WINDOW_SECONDS: 910 };
    for (const path of ["/docs", "/docs.md"]) {
      const read = async (vars: Partial<Env>) =>
        (await deployedWith(vars)(new Request(`https://api.example${path}`))).text();
      const text = await read({ ...quotas, ...failures, ALLOW_LOCAL_WEBHOOKS: "true" });
      expect(text, path).toContain("1234 requests every 56 seconds");
      expect(text, path).toContain("authenticate 78 times in 910 seconds");
      expect(text, path).not.toMatch(/\{\{[A-Z_]+\}\}/);
      if (path === "/docs") {
        expect(text).toContain('data-lenient="true"');
        expect(await read({ ALLOW_LOCAL_WEBHOOKS: "" })).toContain('data-lenient=""');
      }
    }
  });

  test("can be read by pages of other origins only as the OpenAPI document", async () => {
    const readable = async (path: string) =>
      (await fetchFile(path)).headers["access-control-allow-origin"];
    expect(await readable("/openapi.json")).toBe("*");
    for (const path of ["/docs", "/docs.md", "/llms.txt", ...(await loadedFiles())])
      expect(await readable(path), path).toBeUndefined();
  });

  test("is returned whole, whatever the request's conditions and ranges", async () => {
    const [path = ""] = await loadedFiles();
    const plain = await fetchFile(path);
    for (const headers of [{ "If-None-Match": "*" }, { Range: "bytes=0-1" }]) {
      const { status, text } = await fetchFile(path, { headers });
      expect(status).toBe(200);
      expect(text).toBe(plain.text);
    }
  });

  test("answers HEAD like GET, without the body", async () => {
    for (const path of ["/docs", "/docs.md", "/llms.txt", ...(await loadedFiles())]) {
      const { headers } = await fetchFile(path);
      const head = await fetchFile(path, { method: "HEAD" });
      expect(head).toMatchObject({ status: 200, text: "" });
      expect(head.headers).toMatchObject({ "content-type": headers["content-type"] });
    }
  });
});

test("the receiver checker is served as one script, with the common headers", async () => {
  const { status, headers, text } = await fetchFile("/docs/check-receiver.mjs");
  expect({ status, headers }).toEqual(file("text/javascript"));
  expect(text).toContain("X-Service-Test");
});

describe("the client", () => {
  test("is served file by file, as plain text, with the common headers", async () => {
    const docs = (await fetchFile("/docs.md")).text;
    const [, names = ""] = /\/docs\/client\/\{([^}]+)\}/.exec(docs) ?? [];
    expect(names.split(",").toSorted()).toEqual(
      [
        ...["README.md", "package-lock.json", "package.json", "tsconfig.json"],
        ...["api-error.ts", "client.ts", "copy.ts", "events.ts", "leads.ts", "receive.ts"],
        ...["run.ts", "sync.ts", "webhooks.ts"],
      ].toSorted(),
    );
    for (const name of names.split(",")) {
      const { status, headers, text } = await fetchFile(`/docs/client/${name}`);
      expect({ status, headers }, name).toEqual(file("text/plain"));
      if (name.endsWith(".ts")) expect(docs).toContain(`#### ${name}\n\n\`\`\`ts\n${text}`);
    }
  });
});

describe("a path that is not a file of the page", () => {
  test("is 404 with the error body", async () => {
    const paths = [
      "/docs/",
      "/docs/index.html",
      "/docs/assets/",
      "/docs/assets/unknown.js",
      "/docs/assets//page.js",
      "/docs/assets/%ff",
      "/docs/client/",
      "/docs/client/unknown.ts",
      "/docs/client/..%2findex.html",
      "/docs/assets/..%2findex.html",
      "/docsx",
      "/docs.md/",
      "/page.js",
      "/.assetsignore",
    ];
    for (const path of paths) expect(await send(path), path).toEqual(NOT_FOUND);
  });

  test("is 404 for every method other than GET and HEAD", async () => {
    for (const method of ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
      for (const path of ["/docs", "/docs.md", "/docs/client/client.ts", "/openapi.json"])
        expect(await send(path, { method }), `${method} ${path}`).toEqual(NOT_FOUND);
  });
});

describe("the docs as text", () => {
  test("are Markdown with every guide, operation, event, schema and receiver", async () => {
    const { status, headers, text } = await fetchFile("/docs.md");
    expect({ status, headers }).toEqual(file("text/markdown"));
    const { body } = await send<Record<string, Record<string, object>>>("/openapi.json");
    for (const [path, methods] of Object.entries(body.paths ?? {}))
      for (const method of Object.keys(methods))
        expect(text).toContain(`### ${method.toUpperCase()} ${path}\n`);
    for (const type of Object.keys(body.webhooks ?? {}))
      expect(text).toContain(`### Event ${type}`);
    for (const schema of ["Automation", "Lead", "Run", "Webhook", "ErrorReason", "RunStatus"])
      expect(text).toContain(`### ${schema}\n`);
    for (const name of ["Node", "Workers", "Python", "PHP", "Stripe library", "Standard Webhooks"])
      expect(text).toContain(`#### ${name}\n\n\`\`\``);
    const prose = text.replace(/```ts\n[^`]*(`[^`]+)*?```/g, "");
    expect(prose).not.toMatch(/\{\{|undefined|\[object/);
  });

  test("are linked from llms.txt", async () => {
    const { status, headers, text } = await fetchFile("/llms.txt");
    expect({ status, headers }).toEqual(file("text/plain"));
    expect(text).toMatch(/^# Public API\n\n> /);
    expect(text).toContain("(https://api.example/docs.md)");
    expect(text).toContain("`PATCH /v1/automations/{id}`");
    expect(text).not.toContain("undefined");
  });
});
