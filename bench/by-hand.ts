/**
 * A minimal Worker with the same API, written from Cloudflare's guides, to compare with. Each request looks up its key,
 * then calls a Durable Object for its rate limit, then queries. Each delivery is a queue message that carries its body.
 * It is sent once the queue delivers the message, and a row stores its outcome. An event is lost if the queue rejects
 * it, and a receiver that hangs delays the batch that it is in. A batch has the six connections that Cloudflare gives an
 * invocation.
 */
import { DurableObject, WorkerEntrypoint } from "cloudflare:workers";
import { and, desc, eq } from "drizzle-orm";
import { drizzle } from "drizzle-orm/d1";
import { index, integer, sqliteTable, text } from "drizzle-orm/sqlite-core";
import { Hono } from "hono";
import { toHex } from "../src/primitives/bytes.ts";
import { Connections } from "../test/support/connections.ts";
import { consumeWhileHeld, hold, holdQueue } from "./queues.ts";

const keys = sqliteTable("hand_keys", {
  hash: text().primaryKey(),
  workspaceId: text("workspace_id").notNull(),
});
const automations = sqliteTable(
  "hand_automations",
  {
    id: text().primaryKey(),
    workspaceId: text("workspace_id").notNull(),
    name: text().notNull(),
    type: text().notNull(),
    provider: text().notNull(),
    agentId: text("agent_id").notNull(),
    agentName: text("agent_name").notNull(),
    status: text().notNull(),
    createdAt: integer("created_at").notNull(),
  },
  (table) => [index("hand_automations_newest").on(table.workspaceId, table.createdAt, table.id)],
);
const leads = sqliteTable("hand_leads", {
  id: text().primaryKey(),
  workspaceId: text("workspace_id").notNull(),
  source: text().notNull(),
  name: text(),
  createdAt: integer("created_at").notNull(),
});
const subscriptions = sqliteTable("hand_subscriptions", {
  id: text().primaryKey(),
  workspaceId: text("workspace_id").notNull(),
  url: text().notNull(),
  secret: text().notNull(),
  kind: text().notNull(),
});
const attempts = sqliteTable("hand_attempts", {
  id: text().primaryKey(),
  eventId: text("event_id").notNull(),
  subscriptionId: text("subscription_id").notNull(),
  status: integer().notNull(),
  at: integer().notNull(),
});

const TABLES = [
  "CREATE TABLE IF NOT EXISTS hand_keys (hash TEXT PRIMARY KEY, workspace_id TEXT NOT NULL)",
  "CREATE TABLE IF NOT EXISTS hand_automations (id TEXT PRIMARY KEY, workspace_id TEXT NOT NULL, name TEXT NOT NULL, type TEXT NOT NULL, provider TEXT NOT NULL, agent_id TEXT NOT NULL, agent_name TEXT NOT NULL, status TEXT NOT NULL, created_at INTEGER NOT NULL)",
  "CREATE INDEX IF NOT EXISTS hand_automations_newest ON hand_automations (workspace_id, created_at, id)",
  "CREATE TABLE IF NOT EXISTS hand_leads (id TEXT PRIMARY KEY, workspace_id TEXT NOT NULL, source TEXT NOT NULL, name TEXT, created_at INTEGER NOT NULL)",
  "CREATE INDEX IF NOT EXISTS hand_leads_newest ON hand_leads (workspace_id, created_at, id)",
  "CREATE TABLE IF NOT EXISTS hand_subscriptions (id TEXT PRIMARY KEY, workspace_id TEXT NOT NULL, url TEXT NOT NULL, secret TEXT NOT NULL, kind TEXT NOT NULL)",
  "CREATE TABLE IF NOT EXISTS hand_attempts (id TEXT PRIMARY KEY, event_id TEXT NOT NULL, subscription_id TEXT NOT NULL, status INTEGER NOT NULL, at INTEGER NOT NULL)",
];

const encoder = new TextEncoder();
const newId = () => crypto.randomUUID();

async function hashOf(apiKey: string): Promise<string> {
  return toHex(new Uint8Array(await crypto.subtle.digest("SHA-256", encoder.encode(apiKey))));
}

const QUOTA = 100_000_000;
const WINDOW_MS = 60_000;

/** Counts the requests of a key, and stores each count. */
export class KeyGate extends DurableObject<Env> {
  #requests = 0;
  #endsAt = 0;

  async count() {
    const now = Date.now();
    if (now >= this.#endsAt) [this.#requests, this.#endsAt] = [0, now + WINDOW_MS];
    this.#requests++;
    await this.ctx.storage.put("window", { requests: this.#requests, endsAt: this.#endsAt });
    return { remaining: QUOTA - this.#requests, resetMs: this.#endsAt - now };
  }
}

/** Bound by wrangler.toml, and not used. */
export class AddressGate extends DurableObject<Env> {}

type Gates = DurableObjectNamespace<KeyGate>;

const app = new Hono<{ Bindings: Env; Variables: { workspaceId: string } }>();

app.use("/v1/*", async (c, next) => {
  const hash = await hashOf(c.req.header("Authorization")?.slice("Bearer ".length) ?? "");
  const [key] = await drizzle(c.env.DB).select().from(keys).where(eq(keys.hash, hash)).limit(1);
  if (!key) return c.json({ error: { code: "invalid_api_key" } }, 401);
  const { remaining, resetMs } = await (c.env.KEY_GATE as unknown as Gates).getByName(hash).count();
  c.set("workspaceId", key.workspaceId);
  c.header("Cache-Control", "no-store");
  c.header("X-RateLimit-Limit", String(QUOTA));
  c.header("X-RateLimit-Remaining", String(remaining));
  c.header("X-RateLimit-Reset", String(Math.ceil(resetMs / 1000)));
  await next();
});

app.get("/v1/automations", async (c) => {
  const limit = Number(c.req.query("limit") ?? 25);
  const rows = await drizzle(c.env.DB)
    .select()
    .from(automations)
    .where(eq(automations.workspaceId, c.get("workspaceId")))
    .orderBy(desc(automations.createdAt), desc(automations.id))
    .limit(limit + 1);
  const data = rows.slice(0, limit).map((row) => ({
    id: row.id,
    name: row.name,
    type: row.type,
    provider: row.provider,
    agent_id: row.agentId,
    agent_name: row.agentName,
    status: row.status,
    updated_at: new Date(row.createdAt).toISOString(),
  }));
  return c.json({ data, has_more: rows.length > limit, next_cursor: null });
});

app.post("/v1/webhooks", async (c) => {
  const { url, events } = await c.req.json<{ url: string; events: string[] }>();
  const workspaceId = c.get("workspaceId");
  const rows = events.map((kind) => {
    return { id: newId(), workspaceId, url, secret: `whsec_${newId()}`, kind };
  });
  await drizzle(c.env.DB).insert(subscriptions).values(rows);
  return c.json({ id: rows[0]?.id, url, events }, 201);
});

/** A delivery, as its queue message has it. */
interface Message {
  subscriptionId: string;
  url: string;
  secret: string;
  eventId: string;
  body: string;
}

interface Report {
  reference: string;
  source: string;
  name?: string;
}

/** The part of the Platform API that the bench calls. */
export class Platform extends WorkerEntrypoint<Env> {
  async createWorkspace() {
    for (const table of TABLES) await this.env.DB.prepare(table).run();
    return { workspaceId: newId() };
  }

  async createApiKey({ workspaceId }: { workspaceId: string }) {
    const apiKey = `key_live_${newId()}`;
    await drizzle(this.env.DB)
      .insert(keys)
      .values({ hash: await hashOf(apiKey), workspaceId });
    return { apiKey };
  }

  async recordAutomations(report: {
    workspaceId: string;
    automations: { type: string; provider: string; status: string; agent: { name: string } }[];
  }) {
    const { workspaceId } = report;
    const db = drizzle(this.env.DB);
    for (const { agent, ...automation } of report.automations)
      await db.insert(automations).values({
        id: newId(),
        workspaceId,
        name: `Réponse – ${agent.name}`,
        type: automation.type,
        provider: automation.provider,
        status: automation.status,
        agentId: newId(),
        agentName: agent.name,
        createdAt: Date.now(),
      });
    return {};
  }

  async recordLeads({ workspaceId, leads: reports }: { workspaceId: string; leads: Report[] }) {
    const db = drizzle(this.env.DB);
    const createdAt = Date.now();
    const rows = reports.map(({ source, name = null }) => {
      return { id: newId(), workspaceId, source, name, createdAt };
    });
    const [first, ...rest] = rows.map((row) => db.insert(leads).values(row));
    if (first) await db.batch([first, ...rest]);
    const subscribed = await db
      .select()
      .from(subscriptions)
      .where(
        and(eq(subscriptions.workspaceId, workspaceId), eq(subscriptions.kind, "lead.created")),
      );
    const messages = subscribed.flatMap(({ id, url, secret }) =>
      rows.map((row): MessageSendRequest<Message> => {
        const eventId = `evt_${row.id}`;
        const body = { subscriptionId: id, url, secret, eventId, body: bodyOf(eventId, row) };
        return { body };
      }),
    );
    const queue = holdQueue("webhook-deliveries", this.env.DELIVERIES);
    for (let i = 0; i < messages.length; i += 100)
      await queue.sendBatch(messages.slice(i, i + 100));
    return { ids: rows.map(({ id }) => id) };
  }
}

function bodyOf(eventId: string, { id, source, name, createdAt }: typeof leads.$inferSelect) {
  const at = new Date(createdAt).toISOString();
  const person = { name, email: null, phone: null, custom_fields: {} };
  const data = { id, source, agent_id: "agt_1", ...person, created_at: at };
  return JSON.stringify({ id: eventId, type: "lead.created", created_at: at, data });
}

/** Signs and sends a delivery. @returns the status of the response, 0 if there was none. */
async function post({ url, secret, body }: Message, connections: Connections): Promise<number> {
  const timestamp = Math.floor(Date.now() / 1000);
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  const bytes = encoder.encode(secret);
  const key = await crypto.subtle.importKey("raw", bytes, algorithm, false, ["sign"]);
  const mac = await crypto.subtle.sign("HMAC", key, encoder.encode(`${timestamp}.${body}`));
  const signature = `t=${timestamp},v1=${toHex(new Uint8Array(mac))}`;
  try {
    const answer = await connections.use(() =>
      fetch(url, {
        method: "POST",
        redirect: "manual",
        signal: AbortSignal.timeout(10_000),
        headers: { "Content-Type": "application/json", "X-Service-Signature": signature },
        body,
      }),
    );
    await answer.body?.cancel();
    return answer.status;
  } catch {
    return 0;
  }
}

/** What the bench calls, as in `worker.ts`. */
app.get("/bench/hold", (c) => {
  hold(c.req.query("on") === "true");
  return c.body(null);
});
app.get("/bench/consume", async (c) => {
  const consumeBatch = (batch: MessageBatch) => consume(batch as MessageBatch<Message>, c.env);
  await consumeWhileHeld(consumeBatch, Number(c.req.query("consumers")));
  return c.body(null);
});

async function consume(batch: MessageBatch<Message>, env: Env): Promise<void> {
  const db = drizzle(env.DB);
  const connections = new Connections();
  const rows = await Promise.all(
    batch.messages.map(async (message) => {
      const status = await post(message.body, connections);
      if (status >= 200 && status < 300) message.ack();
      else message.retry({ delaySeconds: Math.min(43_200, 10 * 2 ** message.attempts) });
      const { eventId, subscriptionId } = message.body;
      return { id: newId(), eventId, subscriptionId, status, at: Date.now() };
    }),
  );
  const [first, ...rest] = rows.map((row) => db.insert(attempts).values(row));
  if (first) await db.batch([first, ...rest]);
}

export default {
  fetch: app.fetch,
  queue: consume,
  scheduled() {},
} satisfies ExportedHandler<Env, Message>;
