import { EventEmitter, once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { buffer } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";

/** A request that the service sent to a subscriber. */
export interface Post {
  method: string;
  headers: Record<string, string>;
  /** The exact bytes of the body, in base64. */
  body: string;
  /** When it arrived, in Unix milliseconds. */
  at: number;
}

/**
 * Starts the server of all subscribers. A subscriber is a path, `/NAME/ANSWERS`, so that tests in several
 * processes share one port: the path says how the server answers, and a `GET` of it returns what was posted. With
 * `?count=2&ms=9000`, the `GET` waits until two requests have arrived, for 9 s at most.
 *
 * `ANSWERS` are statuses, separated by commas: the first answer, the second, and so on; the last one is
 * repeated. `200@7000` answers after 7 s, and `500:ok` answers with the body `ok`.
 */
export async function startSubscribers(port: number) {
  const posts = new Map<string, Post[]>();
  /** Emits the path of each request that arrives. Many tests wait at once. */
  const arrivals = new EventEmitter().setMaxListeners(0);
  const answer: RequestListener = async (request, response) => {
    const { method = "", url = "", headers } = request;
    if (method === "GET") {
      const [path = "", query] = url.split("?");
      const { count = 0, ms = 0 } = Object.fromEntries(new URLSearchParams(query));
      const signal = AbortSignal.timeout(Number(ms));
      while ((posts.get(path)?.length ?? 0) < Number(count) && !signal.aborted)
        await once(arrivals, path, { signal }).catch(() => {});
      const received = JSON.stringify(posts.get(path) ?? []);
      response.writeHead(200, { "Content-Type": "application/json" }).end(received);
      return;
    }
    const received = posts.get(url) ?? [];
    posts.set(url, received);
    const body = await buffer(request).catch(() => null);
    if (body === null) return;
    const answers = (url.split("/").at(-1) ?? "").split(",");
    const [, status = "204", delayMs = "0", text] =
      /^(\d+)(?:@(\d+))?(?::(.+))?$/.exec(answers[received.length] ?? answers.at(-1) ?? "") ?? [];
    received.push({
      method,
      headers: headers as Record<string, string>,
      body: body.toString("base64"),
      at: Date.now(),
    });
    arrivals.emit(url);
    await sleep(Number(delayMs));
    const redirect = { Location: "/elsewhere/204" };
    response.writeHead(Number(status), status === "302" ? redirect : {}).end(text);
  };
  const server = createServer(answer);
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
  return {
    answer,
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    stop: () => {
      server.close();
      server.closeAllConnections();
    },
  };
}
