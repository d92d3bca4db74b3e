import { createMiddleware } from "hono/factory";
import type { AppEnv } from "./context.ts";

/** Maximum bytes of an unread body to drain, and how long to drain it. */
const UNREAD_BODY_MAX = { bytes: 1024 * 1024, ms: 1_000 } as const;

/**
 * Drains a request body that the handler left unread. An HTTP/1.1 server that has not read a body must close the
 * connection after its response (RFC 9112, 9.3), which would lose the next request if the client has already sent it.
 *
 * The client does not wait for that. The whole response is sent immediately, but its stream only ends when the body has
 * been drained. After that end, the runtime provides no more of the body, not even in `waitUntil`.
 */
export const drainBody = createMiddleware<AppEnv>(async (c, next) => {
  const { body, headers, method } = c.req.raw;
  if (body === null) return next();
  await next();
  // A body that was read to its end, or aborted, stays locked.
  if (body.locked) return;
  if (Number(headers.get("Content-Length")) > UNREAD_BODY_MAX.bytes) return;
  const allRead = drain(body.getReader());
  if (c.res.body === null || method === "HEAD") return allRead;
  const bytes = new Uint8Array(await c.res.arrayBuffer());
  const { readable, writable } = new FixedLengthStream(bytes.byteLength);
  c.executionCtx.waitUntil(sendUntil(allRead, bytes, writable.getWriter()));
  const held = new Response(readable, c.res);
  c.res = undefined;
  c.res = held;
});

/** Reads and discards a body, as far as the limits allow. */
async function drain(reader: ReadableStreamDefaultReader<Uint8Array>): Promise<void> {
  const giveUp = () => reader.cancel().catch(() => {});
  const timer = setTimeout(giveUp, UNREAD_BODY_MAX.ms);
  try {
    for (let bytes = 0; bytes <= UNREAD_BODY_MAX.bytes; ) {
      const { done, value } = await reader.read();
      if (done) return;
      bytes += value.byteLength;
    }
    await giveUp();
  } catch {
    // The client has aborted, so there is no connection to keep.
  } finally {
    clearTimeout(timer);
  }
}

/** Sends a response immediately, and ends it when `allRead` resolves. */
async function sendUntil(
  allRead: Promise<void>,
  bytes: Uint8Array,
  writer: WritableStreamDefaultWriter<Uint8Array>,
): Promise<void> {
  try {
    await writer.write(bytes);
    await allRead;
    await writer.close();
  } catch {
    // The client has gone.
  }
}
