import type { Platform } from "../src/platform/entrypoint.ts";

const AGENT = { reference: "agent", name: "Agent" };
const AT_ONCE = 6;

/**
 * What recording and delivering are held against: the same work without this service around it,
 * started by a request and done when it is answered.
 *
 * - `/bench/floor/record?calls=&leads=&workspace=` calls the Platform API (that is no floor).
 * - `/bench/floor/insert?calls=&leads=&workspace=` inserts as many leads by raw D1 batches.
 * - `/bench/floor/post?count=&url=` posts as many bodies as six connections at once allow.
 */
export async function answerFloor(request: Request, env: Env): Promise<Response> {
  const { pathname, searchParams } = new URL(request.url);
  const number = (name: string) => Number(searchParams.get(name));
  const workspaceId = String(searchParams.get("workspace"));
  switch (pathname) {
    case "/bench/floor/record":
      await record(env, workspaceId, number("calls"), number("leads"));
      break;
    case "/bench/floor/insert":
      await insert(env, workspaceId, number("calls"), number("leads"));
      break;
    case "/bench/floor/post":
      await post(String(searchParams.get("url")), number("count"));
      break;
    default:
      return new Response(null, { status: 404 });
  }
  return new Response();
}

async function record(env: Env, workspaceId: string, calls: number, count: number) {
  const platform = (env as Env & { PLATFORM: Service<typeof Platform> }).PLATFORM;
  for (let i = 0; i < calls; i++) {
    const leads = Array.from({ length: count }, () => ({
      reference: crypto.randomUUID(),
      source: "crm" as const,
      agent: AGENT,
      name: "Camille Durand",
      email: "camille.durand@example.com",
    }));
    await platform.recordLeads({ workspaceId, leads });
  }
}

async function insert({ DB }: Env, workspaceId: string, calls: number, count: number) {
  const statement = DB.prepare(
    "INSERT INTO leads (id, workspace_id, reference, source, agent_id, sealed, created_at, event_id) VALUES (?, ?, ?, 'crm', 'agt_1', zeroblob(120), ?, '')",
  );
  for (let i = 0; i < calls; i++)
    await DB.batch(
      Array.from({ length: count }, () => {
        const id = crypto.randomUUID();
        return statement.bind(`lea_${id}`, workspaceId, id, Date.now());
      }),
    );
}

async function post(url: string, count: number): Promise<void> {
  const body = JSON.stringify({
    id: `evt_${crypto.randomUUID()}`,
    type: "lead.created",
    created_at: new Date().toISOString(),
    data: { name: "Camille Durand", email: "camille.durand@example.com", custom_fields: {} },
  });
  let left = count;
  const connection = async () => {
    while (left-- > 0) {
      const answer = await fetch(url, { method: "POST", body });
      await answer.body?.cancel();
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, connection));
}
