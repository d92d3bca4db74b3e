import { once } from "node:events";
import { createServer, type IncomingMessage, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { buffer } from "node:stream/consumers";

/** Serves on a free port of this machine. Closing cuts the connections that are open. */
export async function serve(listener: RequestListener) {
  const server = createServer(listener).listen(0, "127.0.0.1");
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

/**
 * A free port below those that the system assigns automatically, so that no server started in the meantime
 * gets it; the one after it is free too.
 */
export async function freePort(): Promise<number> {
  for (;;) {
    const port = 10_000 + 2 * Math.floor(Math.random() * 11_000);
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
