import type { IncomingHttpHeaders, IncomingMessage } from "node:http";
import { serve } from "./server.ts";

/** A request that a receiver got, with the exact bytes of its body. */
export interface Post {
  path: string;
  headers: IncomingHttpHeaders;
  body: Buffer;
  /** Unix milliseconds. */
  at: number;
}

/** A subscriber's server on this machine. */
export interface Receiver {
  url: string;
  /** What was posted, oldest first. */
  posts: Post[];
  close(): Promise<void>;
}

/** How a receiver answers: a status, or a status with headers and a body. */
export type Answer = number | { status: number; headers?: Record<string, string>; body?: string };

/** Starts a receiver; `answer` returns each answer: 204 by default, 0 to hang up. */
export async function startReceiver(
  answer: (post: Post) => Answer | Promise<Answer> = () => 204,
): Promise<Receiver> {
  const posts: Post[] = [];
  const server = await serve(async (request, response) => {
    const { url = "", headers } = request;
    const body = await readWhole(request);
    if (!body) return;
    const post = { path: url, headers, body, at: Date.now() };
    posts.push(post);
    const answered = await answer(post);
    const {
      status,
      headers: given,
      body: says,
    } = typeof answered === "number" ? { status: answered } : answered;
    if (status === 0) return request.socket.destroy();
    const redirect = status >= 300 && status < 400 ? { Location: "/elsewhere" } : {};
    response.writeHead(status, { ...redirect, ...given }).end(says);
  });
  return { ...server, posts };
}

/** The body of a request; null if the sender disappears before the end, as a killed Worker does. */
async function readWhole(request: IncomingMessage): Promise<Buffer | null> {
  const chunks: Buffer[] = [];
  try {
    for await (const chunk of request) chunks.push(chunk);
  } catch {
    return null;
  }
  return Buffer.concat(chunks);
}
