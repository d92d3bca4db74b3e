import type { Runtime } from "../scripts/shared/runtime.ts";
import { BODY_MAX_BYTES } from "../src/contract/limits.ts";
import { openPortalSession } from "../test/node/support/portal-session.ts";
import type { Samples } from "./figures.ts";
import { type Extent, openWorkspace, startOrShare, timed } from "./setting.ts";

const ROUNDS = { full: 30, quick: 10, smoke: 1 };

/** The size of each request, its body or, for a GET, its query. */
const SIZE = BODY_MAX_BYTES;

/** Different Chinese characters, for which the parser of URLs takes quadratic time in one label. */
const label = (count: number) =>
  Array.from({ length: count }, (_, i) => String.fromCodePoint(0x4e00 + i)).join("");

/** Repeats a text up to a number of bytes. */
const upTo = (bytes: number, text: string) =>
  text.repeat(Math.floor(bytes / Buffer.byteLength(text)));

/** Room for the rest of a request. */
const ROOM = SIZE - 400;

/** URLs of 16 KB that are expensive to parse, or would be. */
const URLS = {
  label: `https://${label(Math.floor(ROOM / 3))}.example.com/`,
  labels: `https://${upTo(ROOM, "例え.")}com/`,
  encoded: `https://${upTo(ROOM, "%E4%BE%8B")}.example.com/`,
  punycode: `https://xn--${upTo(ROOM, "a8k1")}.example.com/`,
  ligatures: `https://${upTo(ROOM, "\ufdfa")}.example.com/`,
  marks: `https://a${upTo(ROOM, "\u0315\u0300\u05ae\u0062")}.example.com/`,
  dots: `https://${upTo(ROOM, ".")}example.com/`,
  credentials: `https://${upTo(ROOM, "a:@")}example.com/`,
  slashes: `https:${upTo(ROOM, "/\\")}example.com/`,
  segments: `https://example.com/${upTo(ROOM, "../")}`,
  path: `https://example.com/${upTo(ROOM, "é")}`,
  address: `https://[${upTo(ROOM, "1:")}]/`,
};

const EVENTS = ["lead.created"];
const PLAIN_URL = `https://example.com/${"a".repeat(ROOM)}`;

/** Values that are expensive to check, or would be, for a property that is text. */
const BODIES: Record<string, (name: string) => string> = {
  nesting: (name) => `{"${name}":${"[".repeat(ROOM / 2)}${"]".repeat(ROOM / 2)}}`,
  objects: (name) => `{"${name}":${'{"a":'.repeat(ROOM / 6)}1${"}".repeat(ROOM / 6)}}`,
  items: (name) => `{"${name}":[${"0,".repeat(ROOM / 2)}0]}`,
  names: (name) => `{"${name}":"",${properties(ROOM)}}`,
  escapes: (name) => `{"${name}":"${upTo(ROOM, "\\u0041")}"}`,
  quotes: (name) => `{"${name}":"${upTo(ROOM, '\\"')}"}`,
  number: (name) => `{"${name}":${"9".repeat(ROOM)}}`,
  spaces: (name) => `{"${name}":${" ".repeat(ROOM)}""}`,
};

/** Different properties, up to a number of bytes. */
function properties(bytes: number): string {
  return Array.from({ length: bytes / 10 }, (_, i) => `"${1e4 + i}":0`).join();
}

/** A request to measure. */
interface Measured {
  path: string;
  init: RequestInit;
}

/**
 * Measures the most expensive request of 16 KB. Each is compared with a plain one of the same route and size, beside
 * which it is sent, and the fastest of all rounds counts.
 */
export async function measureRequests(extent: Extent): Promise<Samples> {
  const runtime = await startOrShare("shipped", extent);
  const ratios: number[] = [];
  for (const { plain, others } of await openRoutes(runtime)) {
    const all = { plain, ...others };
    const fastest = Object.fromEntries(Object.keys(all).map((name) => [name, Infinity]));
    for (let i = 0; i < ROUNDS[extent]; i++)
      for (const [name, { path, init }] of Object.entries(all)) {
        const ask = async () => (await fetch(new URL(path, runtime.url), init)).arrayBuffer();
        fastest[name] = Math.min(Number(fastest[name]), await timed(ask));
      }
    const [, ...rest] = Object.values(fastest);
    ratios.push(Math.max(...rest) / Number(fastest.plain));
  }
  await runtime.stop();
  return { hostile_request_ratio: [Math.max(...ratios)] };
}

/** A plain request of each route, and others that a hostile client may send. */
async function openRoutes(
  runtime: Runtime,
): Promise<{ plain: Measured; others: Record<string, Measured> }[]> {
  const { workspaceId, apiKey } = await openWorkspace(runtime, ["https://example.com/in"]);
  const { PLATFORM } = runtime.env;
  const { url } = await PLATFORM.createPortalLink({ workspaceId });
  const token = await openPortalSession(new URL(new URL(String(url)).hash, runtime.url));
  const list = await PLATFORM.listWebhooks({ workspaceId });
  const id = String([...list.items][0]?.webhookId);
  const post = (path: string, key: string, body: string, method = "POST"): Measured => ({
    path,
    init: {
      method,
      headers: { Authorization: `Bearer ${key}`, "Content-Type": "application/json" },
      body,
    },
  });
  /** The requests of a route that takes a URL. */
  const withUrl = (send: (body: string) => Measured, rest: object = {}) => ({
    plain: send(JSON.stringify({ url: PLAIN_URL, ...rest })),
    others: {
      ...map(URLS, (url) => send(JSON.stringify({ url, ...rest }))),
      ...map(BODIES, (make) => send(make("url"))),
      events: send(`{"url":"https://example.com","events":[${upTo(ROOM, '"lead.created",')}""]}`),
      numbers: send(`{"url":"https://example.com","events":[${upTo(ROOM, "0,")}0]}`),
    },
  });
  const call = (args: string) =>
    post(
      "/mcp",
      apiKey,
      `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"createWebhook","arguments":${args}}}`,
    );
  const patch = (body: string) => post("/v1/automations/aut_1", apiKey, body, "PATCH");
  const get = (query: string): Measured => ({
    path: `/v1/leads?${query}`,
    init: { headers: { Authorization: `Bearer ${apiKey}` } },
  });
  return [
    withUrl((body) => post("/v1/webhooks", apiKey, body), { events: EVENTS }),
    withUrl((body) => post("/portal/api/webhooks", token, body), { events: EVENTS }),
    withUrl((body) => post(`/portal/api/webhooks/${id}/update`, token, body)),
    withUrl(call, { events: EVENTS }),
    {
      plain: patch(JSON.stringify({ status: "a".repeat(ROOM) })),
      others: map(BODIES, (make) => patch(make("status"))),
    },
    {
      plain: get(`cursor=${"a".repeat(ROOM)}`),
      others: {
        parameters: get(upTo(ROOM, "a=1&")),
        names: get(Array.from({ length: ROOM / 8 }, (_, i) => `${1e4 + i}=1`).join("&")),
        limits: get(upTo(ROOM, "limit=1&")),
        encoded: get(`cursor=${upTo(ROOM, "%61")}`),
        malformed: get(`cursor=${upTo(ROOM, "%")}`),
        digits: get(`limit=${"1".repeat(ROOM)}`),
      },
    },
  ];
}

function map<T>(values: Record<string, T>, toMeasured: (value: T) => Measured) {
  return Object.fromEntries(
    Object.entries(values).map(([name, value]) => [name, toMeasured(value)]),
  );
}
