/**
 * The servers of subscribers, as the Worker under test reaches them: every request that leaves it
 * comes here, in Node. A host answers as its first label says and keeps what it was sent:
 *
 * - `ok-…`: 200; `status-503-…`: that status; `hang-…`: no answer;
 * - `first-fails-…`: 500 to the first request, 200 to the others;
 * - `GET https://<host>/received`: what was posted there, oldest first.
 */
export interface Received {
  url: string;
  headers: Record<string, string>;
  body: string;
}

const received = new Map<string, Received[]>();

export async function answerAsSubscriber(request: Request): Promise<Response> {
  const { hostname, pathname } = new URL(request.url);
  const posts = received.get(hostname) ?? [];
  if (request.method === "GET" && pathname === "/received") return Response.json(posts);
  posts.push({
    url: request.url,
    headers: Object.fromEntries(request.headers),
    body: await request.text(),
  });
  received.set(hostname, posts);
  if (hostname.startsWith("hang-")) await new Promise((resolve) => setTimeout(resolve, 15_000));
  if (hostname.startsWith("first-fails-") && posts.length === 1)
    return new Response(null, { status: 500 });
  const status = Number(/^status-(\d+)-/.exec(hostname)?.[1] ?? 200);
  const headers =
    status >= 300 && status < 400 ? { Location: "https://ok-elsewhere.example/" } : {};
  return new Response(null, { status, headers });
}
