/**
 * The Worker that `npm start` runs: the shipped one, and the part of Cloudflare's API with which a platform
 * publishes to the ingest queue, whatever account and queue its address names. It takes any token, because
 * there is nothing to protect here.
 */
import shipped from "../shared/limited-worker.ts";

export * from "../shared/limited-worker.ts";

const PUBLISH = /^\/client\/v4\/accounts\/[^/]+\/queues\/[^/]+\/messages(?<batch>\/batch)?$/;

/** A message as Cloudflare's API takes it. */
interface PublishedMessage {
  body: unknown;
  content_type?: "json" | "text";
  delay_seconds?: number;
}

async function publish(request: Request, isBatch: boolean, queue: Queue): Promise<Response> {
  if (!/^Bearer ./.test(request.headers.get("Authorization") ?? ""))
    return refuse(403, "Authentication error");
  try {
    const content = await request.json<PublishedMessage & { messages: PublishedMessage[] }>();
    const messages = isBatch ? content.messages : [content];
    await queue.sendBatch(
      messages.map(({ body, content_type = "json", delay_seconds }) => ({
        body,
        contentType: content_type,
        ...(delay_seconds !== undefined && { delaySeconds: delay_seconds }),
      })),
    );
    return Response.json({ success: true, errors: [], messages: [], result: null });
  } catch (error) {
    return refuse(400, (error as Error).message);
  }
}

function refuse(status: number, message: string): Response {
  const errors = [{ code: 10_000, message }];
  return Response.json({ success: false, errors, messages: [], result: null }, { status });
}

export default {
  ...shipped,
  fetch(request, env, ctx) {
    const { groups } = PUBLISH.exec(new URL(request.url).pathname) ?? {};
    if (groups === undefined || request.method !== "POST") return shipped.fetch(request, env, ctx);
    return publish(request, groups.batch !== undefined, env.RECORDS);
  },
} satisfies ExportedHandler<Env>;
