import { openPortalSession } from "../scripts/shared/portal-session.ts";
import type { Runtime } from "../scripts/shared/runtime.ts";
import { eventIdAt } from "../src/contract/ids.ts";
import { type Beside, measureBeside } from "./beside.ts";
import { openWorkspace } from "./isolation.ts";

/** What `PORTAL_REQUESTS` in wrangler.toml allows, evenly spread. */
const REQUEST_EVERY_MS = 200;
const ROWS_AT_ONCE = 50_000;
const HOUR_MS = 3_600_000;

/**
 * Times reads beside a portal link that redelivers ranges of which nothing is to be sent, and asks for
 * all that the portal counts, as often as it may, while sweeps go on with its ranges.
 *
 * @param events how many are stored for its workspace.
 */
export async function measurePortal(
  runtime: Runtime,
  rounds: number,
  events: number,
): Promise<Beside> {
  const { workspaceId } = await openWorkspace(runtime, ["http://127.0.0.1:9/"]);
  const { items } = await runtime.env.PLATFORM.listWebhooks({ workspaceId });
  const id = String(items[0]?.webhookId);
  await fill(runtime, workspaceId, id, events);
  const { url } = await runtime.env.PLATFORM.createPortalLink({ workspaceId });
  const { pathname, hash } = new URL(String(url));
  const token = await openPortalSession(new URL(pathname + hash, runtime.url));
  const call = async (path: string, body?: object) => {
    const answer = await fetch(new URL(`/portal/api/webhooks${path}`, runtime.url), {
      method: body ? "POST" : "GET",
      headers: { Authorization: `Bearer ${token}`, "Content-Type": "application/json" },
      ...(body && { body: JSON.stringify(body) }),
    });
    await answer.arrayBuffer();
  };
  const since = new Date(Date.now() - 29 * 24 * HOUR_MS).toISOString();
  let asked = 0;
  const hostile = [
    () =>
      call(`/${id}/redeliver`, {
        ...{ since, states: ["missed"] },
        // Another range each time.
        until: new Date(Date.now() + asked * HOUR_MS).toISOString(),
      }),
    () => call(`/${id}/enable`, { redeliverSince: since }),
    () => call(`/${id}`),
    () => call(""),
  ];
  const sweeping = setInterval(() => void runtime.scheduled(), 60_000);
  void runtime.scheduled();
  const found = await measureBeside(runtime, rounds, REQUEST_EVERY_MS, () =>
    (hostile[asked++ % hostile.length] as () => Promise<void>)(),
  );
  clearInterval(sweeping);
  return found;
}

/** Stores events that were delivered over the last days. */
async function fill(
  { env: { DB } }: Runtime,
  workspaceId: string,
  webhookId: string,
  events: number,
): Promise<void> {
  const stepMs = Math.floor((7 * 24 * HOUR_MS) / events);
  const startsAt = Date.now() - 7 * 24 * HOUR_MS;
  for (let from = 0; from < events; from += ROWS_AT_ONCE) {
    const ids = Array.from({ length: Math.min(ROWS_AT_ONCE, events - from) }, (_, i) =>
      eventIdAt(startsAt + (from + i) * stepMs),
    );
    const json = JSON.stringify(ids);
    await DB.batch([
      DB.prepare(
        `INSERT INTO events (workspace_id, id, type, body, owed, created_at)
        SELECT ?, value, 'lead.created', ?, ?, ? FROM json_each(?)`,
      ).bind(workspaceId, "x".repeat(500), JSON.stringify([webhookId]), startsAt, json),
      DB.prepare(
        `INSERT INTO deliveries (subscription_id, event_id, workspace_id, state, attempts, due_at, settled_at)
        SELECT ?, value, ?, 'delivered', 1, ?, ? FROM json_each(?)`,
      ).bind(webhookId, workspaceId, startsAt, startsAt, json),
    ]);
  }
}
