import { env } from "cloudflare:workers";
import { expect, test } from "vitest";
import {
  deployedWith,
  errorOf,
  fetchText,
  openWorkspace,
  platformOf,
  send,
} from "../../../support/api.ts";
import {
  exchange,
  HASHED_ANSWER,
  linkToken,
  openPortal,
  PAGE_ANSWER,
  portalRefusal,
} from "../../../support/portal.ts";

const NO_ROUTE = portalRefusal(404, "route_not_found");

/** A deployment whose only file is this one, and what it was asked for. */
function deployedWithFile(text: string, vars: Partial<Env> = {}) {
  const asked: string[] = [];
  const fetch = async (url: URL) => {
    asked.push(url.pathname);
    return new Response(text, { headers: { "Content-Type": "text/javascript" } });
  };
  return { asked, fetch: deployedWith({ ASSETS: { fetch } as unknown as Fetcher, ...vars }) };
}

test("the page has a strict policy, is never stored and calls no gate", async () => {
  expect(await fetchText("/portal")).toEqual({
    status: 200,
    headers: { ...PAGE_ANSWER, "content-type": "text/html; charset=utf-8" },
    text: expect.stringContaining("<!doctype html>"),
  });
});

const ESCAPED = ["A&quot;><script>", "", ""];
const EMPTY = ["", "", ""];
const ACME = ["Acme", "#0B5d51", "true"];
test.each([
  [EMPTY, EMPTY],
  [ACME, ACME],
  ...["red", "#12345", "#123456;", "url(x)"].map((color) => [[`A"><script>`, color, ""], ESCAPED]),
])("the page of a deployment that is set to %j is told %j", async ([name, color, local], told) => {
  const names = ["application-name", "theme-color", "local-webhooks"];
  const { fetch } = deployedWithFile(names.map((name) => `<meta name="${name}">`).join(""), {
    PORTAL_NAME: name as never,
    PORTAL_COLOR: color as never,
    ALLOW_LOCAL_WEBHOOKS: local as string,
  });
  const { text } = await fetchText("/portal", {}, fetch);
  expect([...text.matchAll(/content="([^"]*)"/g)].map(([, content]) => content)).toEqual(told);
});

test("its files are cached for ever, under names with a hash", async () => {
  const { asked, fetch } = deployedWithFile("let x;");
  const path = "/portal/portal.0a1b2c3d4e5f.js";
  expect(await fetchText(path, {}, fetch)).toEqual({
    status: 200,
    headers: { ...HASHED_ANSWER, "content-type": "text/javascript" },
    text: "let x;",
  });
  for (const other of ["index.html", "portal.js", "a/b.0a1b2c3d4e5f.js", "x", ""])
    expect(await send(`/portal/${other}`, {}, fetch)).toEqual(NO_ROUTE);
  expect(asked).toEqual([path]);
  expect(await send("/portal/x.0a1b2c3d4e5f.js")).toEqual(NO_ROUTE);
});

test("with PORTAL off, nothing exists under /portal", async () => {
  const { workspaceId } = await openWorkspace();
  const fetch = deployedWith({ PORTAL: "off" });
  const portal = await openPortal(workspaceId, fetch);
  const paths = ["/portal", "/portal/", "/portal/x.0a1b2c3d4e5f.js", "/portal/api/webhooks"];
  for (const answer of [
    exchange(await linkToken(workspaceId), fetch),
    ...paths.map((path) => send(path, {}, fetch)),
    portal.get("/webhooks"),
    portal.post("/webhooks", {}),
  ])
    expect(await answer).toEqual(portalRefusal(404, "route_not_found"));
  for (const [vars, problem] of [
    [{ PORTAL: "off" }, "PORTAL is off"],
    [{ PORTAL_ORIGIN: "" }, "PORTAL_ORIGIN"],
  ] as const) {
    const platform = platformOf({ ...env, ...vars });
    expect(await errorOf(platform.createPortalLink({ workspaceId }))).toContain(problem);
  }
});
