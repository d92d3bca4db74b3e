import { request } from "node:http";
import type { Shot } from "./requests.ts";

/** A response as received; `body` is its JSON, null if there is none. */
export interface Answer {
  status: number;
  headers: Record<string, string | string[] | undefined>;
  body: unknown;
}

/** Sends a request with no more processing than HTTP requires. */
export async function shoot(base: URL, shot: Shot): Promise<Answer> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await exchange(base, shot);
    } catch (error) {
      // A response sent before the whole body was read can overtake it and close the connection.
      const cut =
        (error as NodeJS.ErrnoException).code === "ECONNRESET" || String(error).includes("EPIPE");
      if (!cut || shot.body === null || attempt === 5) throw error;
    }
  }
}

function exchange(base: URL, { method, path, headers, body }: Shot): Promise<Answer> {
  const bytes = Buffer.from(body ?? "");
  // Node does not send a length for every method.
  const framed = body === null ? headers : { ...headers, "Content-Length": bytes.length };
  return new Promise((resolve, reject) => {
    const call = request(
      { agent: false, host: base.hostname, port: base.port, method, path, headers: framed },
      async (response) => {
        try {
          const chunks: Buffer[] = [];
          for await (const chunk of response) chunks.push(chunk);
          const text = Buffer.concat(chunks).toString();
          // The runtime itself refuses what is not a URI: see wire.test.ts. Nothing reached the Worker.
          if (response.statusCode === 400 && response.headers["content-type"] === "text/plain")
            return resolve(exchange(base, { method, path: asUri(path), headers, body }));
          resolve({
            status: response.statusCode ?? 0,
            headers: response.headers,
            body: text === "" ? null : JSON.parse(text),
          });
        } catch (error) {
          reject(error);
        }
      },
    );
    call.on("error", reject);
    call.end(bytes);
  });
}

/** The path with everything escaped that a URI may not contain. */
function asUri(path: string): string {
  const legal = path.replace(/[^A-Za-z0-9/?&=._~-]/g, encodeURIComponent);
  return legal === path ? "/" : legal;
}
