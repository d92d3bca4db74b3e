import { once } from "node:events";
import { Agent, get, type OutgoingHttpHeaders } from "node:http";
import { buffer } from "node:stream/consumers";

/** What this process is sent for each request, and answers with the `id` of once it is read. */
export interface Asked {
  id: number;
  url: string;
  headers: OutgoingHttpHeaders;
}

const agent = new Agent({ keepAlive: true });

process.on("message", async ({ id, url, headers }: Asked) => {
  const [answer] = await once(get(url, { agent, headers }), "response");
  await buffer(answer);
  process.send?.(id);
});
