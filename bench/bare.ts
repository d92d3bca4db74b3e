/**
 * The baseline of the service: the same gate, tables and requests without the service around them.
 * As a Worker of its own, `GET /v1/automations` by a bare handler.
 */
import type { automations } from "../src/db/schema.ts";
import { hashApiKey } from "../src/rate-limit/key-text.ts";
import { toAutomation } from "../src/records/automations.ts";

export { AddressGate, KeyGate, Platform } from "../src/index.ts";

const LIMIT = 25;
const AT_ONCE = 6;
const PAGE = `SELECT * FROM automations WHERE workspace_id = ? ORDER BY created_at DESC, id DESC LIMIT ${LIMIT + 1}`;
const OWNER = `SELECT w.id FROM api_keys k JOIN workspaces w ON w.id = k.workspace_id
  WHERE k.key_hash = ? AND k.revoked_at IS NULL AND w.access_granted`;
const LEAD = `INSERT INTO leads (id, workspace_id, reference, source, agent_id, sealed, created_at, event_id)
  VALUES (?, ?, ?, 'crm', 'agt_1', zeroblob(120), ?, '')`;

/** The keys that the bare handler has seen: like the shipped Worker, it queries while the gate decides. */
const known = new Map<string, string>();

/** The gate's call, the query, the public shape and its JSON. No framework, no log, no validation. */
async function answerBare(request: Request, env: Env): Promise<Response> {
  const keyHash = await hashApiKey(bearer(request));
  const admitting = admit(env, keyHash);
  const workspaceId = known.get(keyHash) ?? (await admitting).workspaceId;
  known.set(keyHash, workspaceId);
  const [{ rateLimit }, { results }] = await Promise.all([
    admitting,
    env.DB.prepare(PAGE).bind(workspaceId).all<Stored>(),
  ]);
  return page(results, {
    "Content-Type": "application/json",
    "Cache-Control": "no-store",
    "X-RateLimit-Limit": String(rateLimit.limit),
    "X-RateLimit-Remaining": String(rateLimit.remaining),
    "X-RateLimit-Reset": String(Math.ceil(rateLimit.resetMs / 1000)),
  });
}

/** The same as it is usually written: authenticate, authorise, then query, one after the other. */
export async function answerNaively(request: Request, env: Env): Promise<Response> {
  const keyHash = await hashApiKey(bearer(request));
  const owners = await env.DB.prepare(OWNER).bind(keyHash).all<{ id: string }>();
  const workspaceId = owners.results[0]?.id;
  if (!workspaceId) return new Response(null, { status: 401 });
  await admit(env, keyHash);
  const { results } = await env.DB.prepare(PAGE).bind(workspaceId).all<Stored>();
  return page(results, { "Content-Type": "application/json" });
}

/** Inserts `count` leads by raw D1 batches of `size`. */
export async function insertLeads({ DB }: Env, workspaceId: string, count: number, size: number) {
  const statement = DB.prepare(LEAD);
  for (let left = count; left > 0; left -= size)
    await DB.batch(
      Array.from({ length: Math.min(left, size) }, () => {
        const id = crypto.randomUUID();
        return statement.bind(`lea_${id}`, workspaceId, id, Date.now());
      }),
    );
}

/** Posts `count` bodies to a receiver, as many at once as an invocation has connections. */
export async function postBodies(url: string, count: number): Promise<void> {
  const created_at = new Date().toISOString();
  const data = { name: "Camille Durand", email: "camille.durand@example.com", custom_fields: {} };
  const id = `evt_${crypto.randomUUID()}`;
  const body = JSON.stringify({ id, type: "lead.created", created_at, data });
  let left = count;
  const connection = async () => {
    while (left-- > 0) {
      const answer = await fetch(url, { method: "POST", body });
      await answer.body?.cancel();
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, connection));
}

/** A row as D1 returns it. */
type Stored = Record<
  "id" | "name" | "type" | "provider" | "agent_id" | "agent_name" | "status",
  string
> & { updated_at: number };

function page(rows: Stored[], headers: Record<string, string>): Response {
  const data = rows.slice(0, LIMIT).map((row) =>
    toAutomation({
      ...(row as unknown as typeof automations.$inferSelect),
      agentId: row.agent_id,
      agentName: row.agent_name,
      updatedAt: row.updated_at,
    }),
  );
  const body = { data, has_more: rows.length > LIMIT, next_cursor: null };
  return new Response(JSON.stringify(body), { headers });
}

async function admit(env: Env, keyHash: string) {
  const admission = await env.KEY_GATE.getByName(keyHash).admit(keyHash);
  if (admission.verdict !== "admitted") throw new Error(admission.verdict);
  return admission;
}

function bearer(request: Request): string {
  return request.headers.get("Authorization")?.slice("Bearer ".length) ?? "";
}

export default {
  fetch: answerBare,
  queue: (batch) => batch.ackAll(),
} satisfies ExportedHandler<Env>;
