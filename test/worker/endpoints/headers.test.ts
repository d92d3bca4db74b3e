import { beforeAll, describe, expect, test } from "vitest";
import { CustomHeaders } from "../../../src/endpoints/headers.ts";
import { openWorkspace, Platform } from "../../support/api.ts";
import {
  receivedBy,
  setSubscription,
  subscriberUrl,
  subscriptionRow,
} from "../../support/deliveries.ts";
import { openPortal } from "../../support/portal.ts";

const SECRET = "gateway-secret/1";
const AUTHORIZATION = `Bearer ${SECRET}`;

/** A webhook with custom headers, and its portal. */
async function withHeaders(url: string, headers: Record<string, string>) {
  const { workspaceId, api } = await openWorkspace();
  const { body } = await api.post<{ id: string }>("/v1/webhooks", {
    url,
    events: ["lead.created"],
  });
  const webhookId = body.id;
  const path = `/webhooks/${webhookId}`;
  const portal = await openPortal(workspaceId);
  const set = await portal.post(`${path}/update`, { headers });
  const namesOf = async () => (await Platform.readWebhook({ webhookId })).headers;
  return { set, path, webhookId, portal, namesOf };
}

/** The headers of a test event, as the endpoint received them. */
async function sentTo(url: string, webhookId: string) {
  await Platform.sendTestEvent({ webhookId, type: "lead.created" });
  return (await receivedBy({ url })).at(-1)?.headers ?? {};
}

test.each<[part: string, elsewhere: (url: URL) => string]>([
  ["host", () => subscriberUrl()],
  ["port", (url) => `https://${url.hostname}:8443/`],
])("Custom headers do not follow a webhook to another %s", async (_, elsewhere) => {
  const url = subscriberUrl();
  const { webhookId, path, portal } = await withHeaders(url, {
    Authorization: AUTHORIZATION,
    "X-Team": "crm",
  });
  const same = new URL("/other", url).href;
  expect((await portal.post(`${path}/update`, { url: same })).body).toEqual({});
  expect(await sentTo(url, webhookId)).toMatchObject({ authorization: AUTHORIZATION });
  const other = elsewhere(new URL(url));
  const { body } = await portal.post(`${path}/update`, {
    url: other,
    setHeaders: { "x-team": "ops" },
  });
  expect(body).toEqual({ headersDropped: ["Authorization"] });
  const sent = await sentTo(other, webhookId);
  expect([sent.authorization, sent["x-team"]]).toEqual([undefined, "ops"]);
});

test("A custom header that is removed with the change of the origin is not reported as dropped", async () => {
  const { path, portal } = await withHeaders(subscriberUrl(), { "X-One": "1", "X-Two": "2" });
  const change = { url: subscriberUrl(), removeHeaders: ["x-one"] };
  expect((await portal.post(`${path}/update`, change)).body).toEqual({ headersDropped: ["X-Two"] });
});

test("Custom headers that are given with a URL of another origin are sent there", async () => {
  const old = { Authorization: "old", "X-Team": "crm" };
  const { webhookId, path, portal } = await withHeaders(subscriberUrl(), old);
  const url = subscriberUrl();
  const headers = { Authorization: AUTHORIZATION };
  expect((await portal.post(`${path}/update`, { url, headers })).body).toEqual({});
  expect((await sentTo(url, webhookId)).authorization).toBe(AUTHORIZATION);
});

test("setHeaders and removeHeaders leave the other headers as they are", async () => {
  const url = subscriberUrl();
  const { webhookId, namesOf } = await withHeaders(url, { X_One: "1111", "X-Two": "2222" });
  // Some servers read `X_One` and `X-One` as the same header.
  const setHeaders = { "x-one": "new", "X-Three": "3333" };
  await Platform.updateWebhook({ webhookId, setHeaders, removeHeaders: ["X-TWO", "X-Unknown"] });
  expect(await namesOf()).toEqual(["x-one", "X-Three"]);
  const sent = await sentTo(url, webhookId);
  expect([sent["x-one"], sent["x-two"], sent["x-three"]]).toEqual(["new", undefined, "3333"]);
  const many = Object.fromEntries([1, 2, 3, 4].map((n) => [`X-More-${n}`, "more"]));
  await expect(
    Platform.updateWebhook({ webhookId, setHeaders: many }).catch(String),
  ).resolves.toMatch(/setHeaders: at most 5/);
  expect(await namesOf()).toHaveLength(2);
});

test("Custom headers that cannot be decrypted can be replaced, and not added to", async () => {
  const url = subscriberUrl();
  const { webhookId, path, portal } = await withHeaders(url, { "X-One": "1111" });
  // What is encrypted for its secret cannot be read as its headers.
  const { sealedSecret } = await subscriptionRow(webhookId);
  await setSubscription(webhookId, { sealedHeaders: sealedSecret });
  const statuses: number[] = [];
  for (const field of ["setHeaders", "headers"])
    statuses.push((await portal.post(`${path}/update`, { [field]: { "X-One": "2222" } })).status);
  expect(statuses).toEqual([500, 200]);
  expect((await sentTo(url, webhookId))["x-one"]).toBe("2222");
});

describe("a stored response does not show the value of a custom header", () => {
  const endpoint = subscriberUrl("says-500");
  let webhookId: string;
  beforeAll(async () => {
    ({ webhookId } = await withHeaders(endpoint, { Authorization: AUTHORIZATION }));
  });

  test.each([
    ["as it is", `HTTP_AUTHORIZATION: ${AUTHORIZATION}`],
    ["without its scheme", `token=${SECRET}.`],
    ["in JSON with escaped slashes", JSON.stringify({ got: AUTHORIZATION }).replaceAll("/", "\\/")],
    ["in a URL", `?token=${encodeURIComponent(SECRET)}`],
    ["cut at its end", `${"x".repeat(1_010)}${SECRET}`],
  ])("%s", async (_, says) => {
    const url = `${endpoint}&${new URLSearchParams({ says })}`;
    await Platform.updateWebhook({ webhookId, url });
    const { eventId } = await Platform.sendTestEvent({ webhookId, type: "lead.created" });
    const { attemptLog } = await Platform.readDelivery({ webhookId, eventId });
    const shown = JSON.stringify(attemptLog[0]?.response);
    expect(shown).toContain("***");
    expect(shown).not.toContain("gateway");
  });
});

test("A stored response does not show the password of Basic credentials, nor a header that repeats it", async () => {
  const headers = JSON.stringify({ "X-Debug": "user=ada pass=s3cr3t-pass" });
  const url = `${subscriberUrl("status-500")}&${new URLSearchParams({ headers })}`;
  const { webhookId } = await withHeaders(url, {
    Authorization: `Basic ${btoa("ada:s3cr3t-pass")}`,
  });
  const { eventId } = await Platform.sendTestEvent({ webhookId, type: "lead.created" });
  const { attemptLog } = await Platform.readDelivery({ webhookId, eventId });
  expect(attemptLog[0]?.response?.headers["x-debug"]).toBe("user=ada pass=***");
});

test.each(["X_Service_Signature", "__proto__"])(
  "%s is not accepted as a custom header",
  async (name) => {
    const { path, portal, namesOf } = await withHeaders(subscriberUrl(), { Authorization: "kept" });
    const send = (field: string) =>
      portal.send(`${path}/update`, {
        method: "POST",
        headers: { "Content-Type": "application/json" },
        body: `{"${field}":{"${name}":"1"}}`,
      });
    expect([(await send("headers")).status, (await send("setHeaders")).status]).toEqual([400, 400]);
    expect(await namesOf()).toEqual(["Authorization"]);
  },
);

test.each([
  ["the service", "X-Service-Anything webhook-id Webhook_Id User_Agent"],
  [
    "HTTP",
    "Content_Length Transfer_Encoding Host Connection Keep-Alive TE Trailer Upgrade Expect HTTP2-Settings",
  ],
  [
    "ranges, conditions and hops",
    "If-None-Match Range Accept-Encoding Max-Forwards Via Date Early-Data Alt-Used",
  ],
  [
    "proxies",
    "Proxy-Authorization Forwarded X-Forwarded X-Forwarded-For X-Original-URL X-Envoy-Peer Fastly-Client-IP Cf_Connecting_Ip CF-Ray CDN-Loop",
  ],
  [
    "the client's address",
    "X-Real-IP X-Client-IP X-Cluster-Client-IP X-Remote-IP X-Remote-Addr True_Client_IP Client-IP",
  ],
  [
    "another host or method",
    "X-Host X-Rewrite-URL X-HTTP-Method X-HTTP-Method-Override X-Method-Override",
  ],
])("Names are reserved for %s: %s", (_, names) => {
  const accepted = names
    .split(" ")
    .filter((name) => CustomHeaders.safeParse({ [name]: "1" }).success);
  expect(accepted).toEqual([]);
});

test("Two names that an endpoint under CGI cannot tell apart are rejected", async () => {
  const { set } = await withHeaders(subscriberUrl(), { "X-Token": "one1", X_Token: "two2" });
  expect(set.status).toBe(400);
});

const named = (count: number) =>
  Object.fromEntries(Array.from({ length: count }, (_, i) => [`X-Header-${i}`, "value"]));
test.each<[what: string, headers: (size: number) => Record<string, string>, max: number]>([
  ["A subscription has five custom headers at most", named, 5],
  [
    "The name of a custom header has 100 characters at most",
    (size) => ({ ["x".repeat(size)]: "value" }),
    100,
  ],
  [
    "The value of a custom header has 1,000 characters at most",
    (size) => ({ "X-Header": "v".repeat(size) }),
    1_000,
  ],
])("%s", (_, headers, max) => {
  const isValid = (size: number) => CustomHeaders.safeParse(headers(size)).success;
  expect([isValid(max), isValid(max + 1)]).toEqual([true, false]);
});

test.each(["x", "_.-9Z", "!#$%&'*+^`|~"])("%j is a name of a custom header", (name) => {
  expect(CustomHeaders.safeParse({ [name]: "x" }).success).toBe(true);
});

test.each(["!", "~", "a b"])("%j is a value of a custom header", (value) => {
  expect(CustomHeaders.safeParse({ "X-Header": value }).success).toBe(true);
});

test.each(["", "a b", "é", "a:", "x\ny"])("%j is no name of a custom header", (name) => {
  expect(CustomHeaders.safeParse({ [name]: "x" }).success).toBe(false);
});

test.each(["", " value", "value ", "a\tb", "a\r\nB: c", "é", "\x7f"])(
  "%j is no value of a custom header",
  (value) => {
    expect(CustomHeaders.safeParse({ "X-Header": value }).success).toBe(false);
  },
);

const SIGNS = `a&b<c>"d'e/f`;
test.each([
  ["HTML", "<p>a&amp;b&lt;c&gt;&quot;d&#39;e/f</p>", "<p>***</p>"],
  ["JSON", JSON.stringify({ got: SIGNS }), '{"got":"***"}'],
])("A stored response does not show a value that %s escapes", async (_, says, shown) => {
  const url = `${subscriberUrl("says-500")}&${new URLSearchParams({ says })}`;
  const { webhookId } = await withHeaders(url, { "X-Token": SIGNS });
  const { eventId } = await Platform.sendTestEvent({ webhookId, type: "lead.created" });
  const { attemptLog } = await Platform.readDelivery({ webhookId, eventId });
  expect(attemptLog[0]?.response?.body).toBe(shown);
});
