import type { automations } from "../src/db/schema.ts";
import { hashApiKey } from "../src/quota/api-key.ts";
import { toAutomation } from "../src/records/automations.ts";

const LIMIT = 25;
const SQL = `SELECT * FROM automations WHERE workspace_id = ? ORDER BY created_at DESC, id DESC LIMIT ${LIMIT + 1}`;
const OWNER = `SELECT w.id FROM api_keys k JOIN workspaces w ON w.id = k.workspace_id
  WHERE k.key_hash = ? AND k.revoked_at IS NULL AND w.access_granted`;

/**
 * The keys that the baseline has seen: it starts its query while the gate decides, as the shipped
 * Worker does.
 */
const workspaces = new Map<string, string>();

/**
 * `GET /v1/automations` with only the essentials: the gate's call, the query, the public shape and
 * its JSON. No framework, no log, no validation.
 */
export async function answerBare(request: Request, env: Env): Promise<Response> {
  const keyHash = await hashApiKey(bearer(request));
  const admitting = env.KEY_GATE.getByName(keyHash).admit(keyHash);
  const known = workspaces.get(keyHash) ?? (await admitted(admitting)).workspaceId;
  workspaces.set(keyHash, known);
  const session = env.DB.withSession("first-unconstrained");
  const [{ rateLimit }, { results }] = await Promise.all([
    admitted(admitting),
    session.prepare(SQL).bind(known).all<Stored>(),
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
  await admitted(env.KEY_GATE.getByName(keyHash).admit(keyHash));
  const { results } = await env.DB.prepare(SQL).bind(workspaceId).all<Stored>();
  return page(results, { "Content-Type": "application/json" });
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

type Admitting = ReturnType<ReturnType<Env["KEY_GATE"]["getByName"]>["admit"]>;

async function admitted(admitting: Admitting) {
  const admission = await admitting;
  if (admission.verdict !== "admitted") throw new Error(admission.verdict);
  return admission;
}

function bearer(request: Request): string {
  return request.headers.get("Authorization")?.slice("Bearer ".length) ?? "";
}
