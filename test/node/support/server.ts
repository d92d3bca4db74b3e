import { once } from "node:events";
import { createServer, type IncomingMessage, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { buffer } from "node:stream/consumers";

/** Serves on a free port of this machine. Closing cuts the connections that are open. */
export async function serve(listener: RequestListener) {
  // It ends no idle connection, on which a client may just be sending its next request.
  const server = createServer({ keepAliveTimeout: 0 }, listener).listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    close: () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

/** Passes requests of clients on to `origin`, each after `before`; answers 502 if that throws. */
export async function proxyTo(origin: URL, before: (request: IncomingMessage) => Promise<void>) {
  return serve(async (request, response) => {
    try {
      await before(request);
    } catch {
      response.writeHead(502).end();
      return;
    }
    const { authorization = "", "content-type": type = "" } = request.headers;
    const body = await buffer(request);
    const answer = await fetch(new URL(String(request.url), origin), {
      method: String(request.method),
      headers: { Authorization: authorization, ...(type && { "Content-Type": type }) },
      ...(body.length > 0 && { body: new Uint8Array(body) }),
    });
    const answerType = answer.headers.get("Content-Type");
    response.writeHead(answer.status, { ...(answerType && { "Content-Type": answerType }) });
    response.end(await answer.text());
  });
}

/** How many pairs of ports each of Vitest's workers has. */
const PAIRS = 100;
let given = Math.floor(Math.random() * PAIRS);

/**
 * A free port; the one after it is free too. Nobody else gets it before a program listens on it: each worker
 * has ports of its own, gives them away in turn, and the system assigns none of them automatically.
 */
export async function freePort(): Promise<number> {
  const worker = Number(process.env.VITEST_POOL_ID ?? 0) % 100;
  for (;;) {
    const port = 10_000 + 2 * (worker * PAIRS + (given++ % PAIRS));
    if ((await isFree(port)) && (await isFree(port + 1))) return port;
  }
}

async function isFree(port: number): Promise<boolean> {
  const server = createServer().listen(port);
  return once(server, "listening").then(
    () => new Promise((resolve) => server.close(() => resolve(true))),
    () => false,
  );
}
