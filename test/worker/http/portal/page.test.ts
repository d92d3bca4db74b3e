import { createExecutionContext } from "cloudflare:test";
import { env, exports } from "cloudflare:workers";
import { expect, test } from "vitest";
import { Platform } from "../../../../src/platform/entrypoint.ts";
import { deployedWith, errorOf, openWorkspace, refusal, send } from "../../../support/api.ts";
import {
  exchange,
  linkToken,
  openPortal,
  PORTAL_ANSWER,
  portalRefusal,
} from "../../../support/portal.ts";

const POLICY =
  "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

async function fetchFile(path: string, init: RequestInit = {}) {
  const response = await exports.default.fetch(`https://api.example${path}`, init);
  const headers = Object.fromEntries(response.headers);
  return { status: response.status, headers, text: await response.text() };
}

const PAGE_HEADERS = {
  ...PORTAL_ANSWER,
  "content-security-policy": POLICY,
  "content-type": "text/html; charset=utf-8",
  "cross-origin-opener-policy": "same-origin",
};

test("the page has a strict policy, is never stored and calls no gate", async () => {
  const { status, headers, text } = await fetchFile("/portal");
  expect(status).toBe(200);
  expect(headers).toEqual(PAGE_HEADERS);
  expect(text).toContain("<!doctype html>");
});

test("the page is told what the deployment is set to", async () => {
  const names = ["application-name", "theme-color", "local-webhooks"];
  const page = names.map((name) => `<meta name="${name}">`).join("");
  const ASSETS = { fetch: async () => new Response(page) } as unknown as Fetcher;
  const told = async (vars: Partial<Env>) => {
    const fetch = deployedWith({ ASSETS, ...vars });
    const text = await (await fetch(new Request("https://api.example/portal"))).text();
    return [...text.matchAll(/content="([^"]*)"/g)].map(([, content]) => content);
  };
  const set = (name: string, color: string, local: string) =>
    told({
      PORTAL_NAME: name as never,
      PORTAL_COLOR: color as never,
      ALLOW_LOCAL_WEBHOOKS: local,
    });
  expect(await set("", "", "")).toEqual(["", "", ""]);
  expect(await set("Acme", "#0B5d51", "true")).toEqual(["Acme", "#0B5d51", "true"]);
  for (const color of ["red", "#12345", "#123456;", "url(x)"])
    expect(await set(`A"><script>`, color, "")).toEqual(["A&quot;><script>", "", ""]);
});

test("its files are cached for ever, under names with a hash", async () => {
  const asset = new Response("let x;", { headers: { "Content-Type": "text/javascript" } });
  const asked: string[] = [];
  const ASSETS = {
    fetch: async (url: URL) => {
      asked.push(url.pathname);
      return asset.clone();
    },
  } as unknown as Fetcher;
  const fetch = deployedWith({ ASSETS });
  const path = "/portal/portal.0a1b2c3d4e5f.js";
  const response = await fetch(new Request(`https://api.example${path}`));
  expect(response.status).toBe(200);
  expect(await response.text()).toBe("let x;");
  expect(Object.fromEntries(response.headers)).toEqual({
    ...PAGE_HEADERS,
    "cache-control": "public, max-age=31536000, immutable",
    "content-type": "text/javascript",
  });
  for (const other of ["/portal/index.html", "/portal/portal.js", "/portal/a/b.0a1b2c3d4e5f.js"])
    expect((await fetch(new Request(`https://api.example${other}`))).status).toBe(404);
  expect(asked).toEqual([path]);
});

test.each(["/portal/index.html", "/portal/x.0a1b2c3d4e5f.js", "/portal/x", "/portal/"])(
  "there is no %s",
  async (path) => {
    expect(await send(path)).toEqual(portalRefusal(404, "route_not_found"));
  },
);

test("with PORTAL off, nothing exists under /portal, and no link is made, nor without its address", async () => {
  const { workspaceId } = await openWorkspace();
  const fetch = deployedWith({ PORTAL: "off" });
  const portal = await openPortal(workspaceId, fetch);
  const link = await linkToken(workspaceId);
  const notFound = refusal(404, "route_not_found");
  expect(await exchange(link, fetch)).toEqual(notFound);
  for (const path of ["/portal", "/portal/", "/portal/x.0a1b2c3d4e5f.js", "/portal/api/webhooks"])
    expect(await send(path, {}, fetch)).toEqual(notFound);
  expect(await portal.get("/webhooks")).toEqual(notFound);
  expect(await portal.post("/webhooks", {})).toEqual(notFound);
  const off = new Platform(createExecutionContext(), { ...env, PORTAL: "off" });
  expect(await errorOf(off.createPortalLink({ workspaceId }))).toContain("PORTAL is off");
  const nowhere = new Platform(createExecutionContext(), { ...env, PORTAL_ORIGIN: "" });
  expect(await errorOf(nowhere.createPortalLink({ workspaceId }))).toContain("PORTAL_ORIGIN");
});
