/** Receives webhooks in a Worker: wrangler secret put WEBHOOK_SECRET && wrangler deploy */
import { DurableObject } from "cloudflare:workers";

interface Env {
  WEBHOOK_SECRET: string;
  INBOX: DurableObjectNamespace<Inbox>;
}

interface Delivery {
  id: string;
  type: string;
  data: unknown;
}

/** Larger than any delivery, in bytes: a sender of more is cut off. */
const BODY_MAX = 2_000_000;

/** Time limit for the body, in milliseconds. */
const READ_TIMEOUT = 10_000;

export default {
  async fetch(request: Request, env: Env): Promise<Response> {
    if (!env.WEBHOOK_SECRET) throw new Error("WEBHOOK_SECRET is not set");
    const body = await readBody(request);
    if (body === null) return new Response(null, { status: 413 });
    const header = request.headers.get("X-Service-Signature") ?? "";
    if (!(await isGenuine(header, body, env.WEBHOOK_SECRET))) {
      return new Response(null, { status: 401 });
    }
    const event: Delivery = JSON.parse(new TextDecoder().decode(body));
    const isTest = request.headers.has("X-Service-Test"); // Its record is invented.
    if (!isTest) await env.INBOX.getByName(event.id).receive(event);
    return new Response(null, { status: 204 });
  },
};

/** One per event id: all its deliveries meet here, wherever they arrive. */
export class Inbox extends DurableObject<Env> {
  async receive(event: Delivery): Promise<void> {
    await this.ctx.blockConcurrencyWhile(async () => {
      if (await this.ctx.storage.get("done")) return;
      await work(event);
      await this.ctx.storage.put("done", true); // After the work: a crash repeats it instead of losing it.
      await this.ctx.storage.setAlarm(Date.now() + 42 * 86_400_000); // The event may come again until then.
    });
  }

  override async alarm(): Promise<void> {
    await this.ctx.storage.deleteAll();
  }
}

/** The body of a request; null if it is too large or too slow. */
async function readBody(request: Request): Promise<Uint8Array | null> {
  const reader = (request.body ?? new Blob().stream()).getReader();
  const late = AbortSignal.timeout(READ_TIMEOUT);
  late.onabort = () => reader.cancel();
  const chunks: Uint8Array[] = [];
  let size = 0;
  for (;;) {
    const { value } = await reader.read();
    if (late.aborted) return null;
    if (!value) return new Uint8Array(await new Blob(chunks).arrayBuffer());
    size += value.length;
    if (size > BODY_MAX) return reader.cancel().then(() => null);
    chunks.push(value);
  }
}

/** Whether the header signs exactly these bytes, with a timestamp within 5 minutes of now. */
async function isGenuine(header: string, body: Uint8Array, secret: string): Promise<boolean> {
  const fields = header.split(",").map((field) => field.split("="));
  const time = fields.find(([name]) => name === "t")?.[1] ?? "";
  if (!/^\d+$/.test(time)) return false;
  const age = Math.floor(Date.now() / 1000) - Number(time);
  if (Math.abs(age) > 300) {
    console.error(`rejected: the timestamp is ${age} s old; is this server's clock right?`);
    return false;
  }
  const text = new TextEncoder();
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  const key = await crypto.subtle.importKey("raw", text.encode(secret), algorithm, false, ["sign"]);
  const signed = await new Blob([`${time}.`, body]).arrayBuffer();
  const digest = new Uint8Array(await crypto.subtle.sign("HMAC", key, signed));
  const hex = Array.from(digest, (byte) => byte.toString(16).padStart(2, "0")).join("");
  const expected = text.encode(hex);
  return fields.some(([name, value = ""]) => {
    const given = text.encode(value);
    if (name !== "v1" || given.length !== expected.length) return false;
    return crypto.subtle.timingSafeEqual(given, expected);
  });
}

async function work(event: Delivery): Promise<void> {
  console.log(event.type, event.id);
}
