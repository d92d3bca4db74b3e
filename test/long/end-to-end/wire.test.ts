import { once } from "node:events";
import { setTimeout } from "node:timers/promises";
import { describe, expect, test } from "vitest";
import { startRuntime } from "../../../scripts/shared/runtime.ts";
import { opened } from "../../node/support/opened.ts";
import { openSocket } from "../../node/support/socket.ts";
import { openWorkspace } from "../../node/support/workspace.ts";
import { until } from "../../support/until.ts";

const logs: string[] = [];
const runtime = await opened(
  startRuntime({
    assets: true,
    vars: { AUTH_FAILURES: 1_000, ALLOW_LOCAL_WEBHOOKS: "" },
    // Without those of the preparations and the runtime's own, which may come late.
    onLog: (line) => /^{(?!.*"platform_call")/.test(line) && logs.push(line),
  }),
);
const good = `Authorization: Bearer ${(await openWorkspace(runtime)).apiKey}\r\n`;

const open = () => openSocket(Number(runtime.url.port), runtime.url.hostname);

/** Sends raw bytes, then nothing more, and returns what comes back. */
async function exchange(bytes: string): Promise<string> {
  const socket = open();
  const closed = once(socket, "close");
  socket.end(Buffer.from(bytes, "latin1"));
  await closed;
  return socket.answer;
}

const HOST = "Host: api.example\r\nConnection: close\r\n";

function get(path: string, headers = good): string {
  return `GET ${path} HTTP/1.1\r\n${HOST}${headers}\r\n`;
}

/** A request to create a subscription, framed by the given `headers` and `body`. */
function post(headers: string, body: string): string {
  const type = "Content-Type: application/json\r\n";
  return `POST /v1/webhooks HTTP/1.1\r\n${HOST}${good}${type}${headers}\r\n${body}`;
}

const CREATION = '{"url":"http://hooks.example.com/","events":["lead.created"]}';
const CHUNK = `${CREATION.length.toString(16)}\r\n${CREATION}\r\n`;
const LENGTH = `Content-Length: ${CREATION.length}\r\n`;
const CHUNKED = "Transfer-Encoding: chunked\r\n";
const NOT_JSON = "400 invalid_json";
const TEXT = "Content-Type: text/plain\r\n";

const bearer = (text: string) => get("/v1/leads", `Authorization: Bearer ${text}\r\n`);

test.each([
  ["a path of 60,000 characters", get(`/v1/${"a".repeat(60_000)}`), "404 route_not_found"],
  ["an overlong escape in a path", get("/v1/automations/%c0%af"), "404 automation_not_found"],
  ["no key, and dots that leave /v1", get("/x/../v1/leads", ""), "401 invalid_api_key"],
  ["a key of 70,000 characters", bearer("k".repeat(70_000)), "401 invalid_api_key"],
  ["a key of 60,000 spaces", bearer(" ".repeat(60_000)), "401 invalid_api_key"],
  ["a key with a non-ASCII byte", bearer("key_live_\xe9"), "401 invalid_api_key"],
  ["the valid key twice", get("/v1/leads", good + good), "401 invalid_api_key"],
  ["a complete body", post(LENGTH, CREATION), "400 https_required"],
  ["a body shorter than its length", post("Content-Length: 1000\r\n", CREATION), NOT_JSON],
  ["a body longer than its length", post("Content-Length: 10\r\n", CREATION), NOT_JSON],
  ["a body without a length", post("", CREATION), NOT_JSON],
  ["a chunk without a size", post(CHUNKED, `zz\r\n${CREATION}\r\n0\r\n\r\n`), NOT_JSON],
  ["a body without its last chunk", post(CHUNKED, CHUNK), NOT_JSON],
  ["a body of two types", post(LENGTH + TEXT, CREATION), "415 unsupported_media_type"],
  [
    "a chunked body, whatever its Content-Length says",
    post(`Content-Length: 3\r\n${CHUNKED}`, `${CHUNK}0\r\n\r\n`),
    "400 https_required",
  ],
])("%s", async (_, request, expected) => {
  const seen = logs.length;
  const [head = "", body = ""] = (await exchange(request)).split("\r\n\r\n");
  const [, status] = /^HTTP\/1.1 (\d+) /.exec(head) ?? [];
  const [, ...lines] = head.toLowerCase().split("\r\n");
  expect(lines).toContain("cache-control: no-store");
  for (const name of ["limit", "remaining", "reset"])
    expect(lines).toContainEqual(expect.stringMatching(`^x-ratelimit-${name}: \\d+$`));
  const { code, details } = JSON.parse(body).error;
  expect(`${status} ${code === "invalid_request" ? details.reason : code}`).toBe(expected);
  // Logged as what it was, and not as an internal error.
  await until(() => logs.length > seen);
  expect(logs.slice(seen).map((line) => JSON.parse(line))).toMatchObject([
    { event: "request", status: Number(status) },
  ]);
});

test("a raw byte in a path or query never arrives: the runtime responds with 400 by itself", async () => {
  const seen = logs.length;
  for (const path of ["/v1/automations/\xff", "/v1/leads?cursor=\xff"])
    expect(await exchange(get(path))).toMatch(/^HTTP\/1.1 400 /);
  // A request that does arrive is logged behind them.
  await exchange(get("/v1/nowhere"));
  await until(() => logs.length > seen);
  expect(logs.slice(seen).map((line) => JSON.parse(line))).toMatchObject([{ status: 404 }]);
});

test("an HTTP/1.0 request is served", async () => {
  expect(await exchange(get("/v1/leads").replace("HTTP/1.1", "HTTP/1.0"))).toMatch(
    /^HTTP\/1\.\d 200 /,
  );
});

describe("a connection", () => {
  const JSON_TYPE = "Content-Type: application/json\r\n";
  const LARGE = "y".repeat(400_000);
  const framed = (body: string) => `Content-Length: ${body.length}\r\n\r\n${body}`;
  const inChunks = (body: string) =>
    `${CHUNKED}\r\n${body.length.toString(16)}\r\n${body}\r\n0\r\n\r\n`;
  /** A request on a connection that is kept alive. */
  const keeping = (request: string, headers: string, rest: string) =>
    `${request} HTTP/1.1\r\nHost: api.example\r\n${headers}${rest}`;

  const UNREAD: [status: number, what: string, request: () => string][] = [
    [401, "", () => keeping("POST /v1/webhooks", JSON_TYPE, framed(CREATION))],
    [401, "large", () => keeping("POST /v1/webhooks", JSON_TYPE, framed(LARGE))],
    [404, "outside /v1", () => keeping("POST /nowhere", JSON_TYPE, framed(LARGE))],
    [404, "", () => keeping("PATCH /v1/leads", good + JSON_TYPE, framed(LARGE))],
    [415, "", () => keeping("POST /v1/webhooks", good, framed(CREATION))],
    [413, "", () => keeping("POST /v1/webhooks", good + JSON_TYPE, framed(LARGE))],
    [413, "chunked", () => keeping("POST /v1/webhooks", good + JSON_TYPE, inChunks(LARGE))],
    [200, "of a GET", () => keeping("GET /v1/leads", good, framed(LARGE))],
    [200, "of a GET of the docs", () => keeping("GET /docs", "", framed(LARGE))],
    [200, "of a HEAD", () => keeping("HEAD /v1/leads", good, framed(LARGE))],
  ];

  test.each(UNREAD)("survives a %i that leaves a body unread %s", async (status, _, request) => {
    for (let time = 0; time < 3; time++) {
      const socket = open();
      socket.write(request());
      await until(() => socket.answer.startsWith(`HTTP/1.1 ${status} `));
      // If it is going to be closed, it is closed now.
      await setTimeout(20);
      socket.write(get("/v1/leads"));
      await until(() => socket.answer.split("HTTP/1.1 ").length === 3);
      socket.destroy();
    }
  });

  test("is closed if the body never comes", async () => {
    const socket = open();
    const closed = once(socket, "close");
    socket.write(keeping("POST /v1/webhooks", JSON_TYPE, "Content-Length: 1000\r\n\r\n{"));
    await closed;
    expect(socket.answer).toContain("invalid_api_key");
  });
});
