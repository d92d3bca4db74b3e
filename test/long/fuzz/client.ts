import { request } from "node:http";
import type { Shot } from "./requests.ts";

/** An answer as it came over the wire; `body` is its JSON, null when there is none. */
export interface Answer {
  status: number;
  headers: Record<string, string | string[] | undefined>;
  body: unknown;
}

/** Sends a request as raw as HTTP allows. */
export async function shoot(base: URL, shot: Shot): Promise<Answer> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await exchange(base, shot);
    } catch (error) {
      // An answer that does not wait for the whole body can overtake it and close the connection.
      const cut =
        (error as NodeJS.ErrnoException).code === "ECONNRESET" || String(error).includes("EPIPE");
      if (!cut || shot.body === null || attempt === 5) throw error;
    }
  }
}

function exchange(base: URL, { method, path, headers, body }: Shot): Promise<Answer> {
  const bytes = Buffer.from(body ?? "");
  // Not every method makes Node tell the length of what it sends.
  const framed = body === null ? headers : { ...headers, "Content-Length": bytes.length };
  return new Promise((resolve, reject) => {
    const call = request(
      { agent: false, host: base.hostname, port: base.port, method, path, headers: framed },
      async (response) => {
        try {
          const chunks: Buffer[] = [];
          for await (const chunk of response) chunks.push(chunk);
          const text = Buffer.concat(chunks).toString();
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
