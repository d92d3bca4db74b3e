/**
 * The subscribers' servers, as reached by the Worker under test: every outgoing request ends up here,
 * in Node. A host answers as its first label says and stores what it was sent:
 *
 * - `ok-…`: 200; `status-503-…`: that status; `hang-…`: 200 after three seconds, for tests that shorten their timers;
 * - `endless-500-…`: that status, and a body that never ends;
 * - `says-200-…`: that status; the body is the `says` of the URL, `times` over, its `Content-Type` its `type`;
 * - `echo-500-…`: that status, and what was posted;
 * - `flood-200-…`: that status, and text that does not end;
 * - `first-fails-…`: 503 to the first request, 200 to the others;
 * - `?retry-after=…` in the URL: the header `Retry-After` of the answer; `?headers=…`: more of them, as JSON;
 * - `GET https://<host>/received`: what was posted there, oldest first.
 *
 * `https://dns.example/` is a resolver (DNS over HTTPS, JSON API): see `resolve`.
 */
export interface Received {
  url: string;
  headers: Record<string, string>;
  body: string;
}

const received = new Map<string, Received[]>();

export async function answerAsSubscriber(request: Request): Promise<Response> {
  const { hostname, pathname, searchParams } = new URL(request.url);
  if (hostname === "dns.example" && pathname === "/asked")
    return Response.json(asked.get(searchParams.get("name") ?? "") ?? 0);
  if (hostname === "dns.example")
    return request.headers.get("accept") === "application/dns-json"
      ? resolve(searchParams)
      : new Response(null, { status: 415 });
  const posts = received.get(hostname) ?? [];
  if (request.method === "GET" && pathname === "/received") return Response.json(posts);
  received.set(hostname, posts);
  const { url, headers: sent } = request;
  posts.push({ url, headers: Object.fromEntries(sent), body: await request.text() });
  if (hostname.startsWith("hang-")) await sleep(3_000);
  if (hostname.startsWith("first-fails-") && posts.length === 1)
    return new Response(null, { status: 503 });
  const status = Number(/^(?:status|says|echo|flood|endless)-(\d+)-/.exec(hostname)?.[1] ?? 200);
  const headers = new Headers(JSON.parse(searchParams.get("headers") ?? "{}"));
  if (status >= 300 && status < 400 && !headers.has("Location"))
    headers.set("Location", `https://ok-elsewhere-${hostname}/`);
  const retryAfter = searchParams.get("retry-after");
  if (retryAfter !== null) headers.set("Retry-After", retryAfter);
  const type = hostname.startsWith("echo-") ? "application/json" : searchParams.get("type");
  if (type) headers.set("Content-Type", type);
  if (hostname.startsWith("endless-"))
    return new Response(new ReadableStream({ start }), { status });
  if (hostname.startsWith("flood-")) return new Response(flood(), { status, headers });
  const echo = hostname.startsWith("echo-") ? posts.at(-1)?.body : says(searchParams);
  return new Response(echo ? new TextEncoder().encode(echo) : null, { status, headers });
}

function sleep(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** `says`, repeated `times`. */
function says(query: URLSearchParams): string | undefined {
  return query.get("says")?.repeat(Number(query.get("times") ?? 1));
}

/** Text for ten seconds; the runtime under test does not tell that nobody reads it any more. */
function flood(): ReadableStream {
  let chunks = 0;
  return new ReadableStream({
    async pull(controller) {
      controller.enqueue(new TextEncoder().encode("é".repeat(300)));
      if (++chunks > 10) await sleep(50);
      if (chunks > 200) controller.close();
    },
  });
}

function start(controller: ReadableStreamDefaultController<Uint8Array>): void {
  controller.enqueue(new TextEncoder().encode("."));
}

/** The addresses of the names that the resolver knows, by their first label: A and AAAA. */
const ADDRESSES: Record<string, [a: string[], aaaa: string[]]> = {
  public: [["8.8.8.8"], ["2606:4700:4700::1111"]],
  private: [["10.0.0.1", "169.254.169.254"], ["fd00::1"]],
  mixed: [["10.0.0.1", "8.8.8.8"], []],
  privatev4: [["192.168.1.2"], []],
  privatev6: [["8.8.8.8"], ["fd00::1"]],
  publicv6: [["127.0.0.1"], ["2606:4700:4700::1111"]],
  empty: [[], []],
  digits: [["8.8.8.8"], []],
};

/** Number of A look-ups of each name: `GET https://dns.example/asked?name=…`. */
const asked = new Map<string, number>();

/**
 * Answers as the first label of the name says: an entry above, or one of the following.
 *
 * - `half-private-…`: AAAA fails; `nov6-…`: AAAA says that there is no such name; `late-private-…`: after a second; `latev6-private-…`: AAAA after a second;
 * - `turns-private-…`: public the first time, private from then on.
 */
async function resolve(query: URLSearchParams): Promise<Response> {
  const name = query.get("name") ?? "";
  const isV6 = query.get("type") === "AAAA";
  const count = (asked.get(name) ?? 0) + (isV6 ? 0 : 1);
  asked.set(name, count);
  const parts = name.split(/[-.]/);
  const behaviour = ["half", "nov6", "late", "latev6", "turns"].includes(parts[0] ?? "")
    ? parts.shift()
    : null;
  const [kind = ""] = parts;
  const label = behaviour === "turns" && count <= 1 ? "public" : kind;
  if (behaviour === "half" && isV6) return Response.json({ Status: 2 });
  if (behaviour === "nov6" && isV6) return Response.json({ Status: 3 });
  if (behaviour === "late" || (behaviour === "latev6" && isV6)) await sleep(1_000);
  if (label === "nxdomain") return Response.json({ Status: 3 });
  if (label === "servfail") return Response.json({ Status: 2 });
  if (label === "halfnx") return Response.json({ Status: query.get("type") === "A" ? 3 : 2 });
  if (label === "silent") await sleep(5_000);
  if (label === "garbage") return new Response("<html>");
  if (label === "odd") return Response.json({ Status: 0, Answer: [{ type: 1, data: "nonsense" }] });
  if (label === "null") return Response.json(null);
  if (label === "nulls") return Response.json({ Status: 0, Answer: [null] });
  if (label === "down") return new Response("overloaded", { status: 503 });
  const [a, aaaa] = ADDRESSES[label] ?? [[], []];
  const [type, addresses] = isV6 ? [28, aaaa] : [1, a];
  const alias = { name, type: 5, data: label === "digits" ? "10" : "alias.example." };
  const records = addresses.map((data) => ({ name: alias.data, type, data }));
  return Response.json({ Status: 0, Answer: [alias, ...records] });
}
