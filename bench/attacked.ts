import type { Runtime } from "../scripts/shared/runtime.ts";
import { newEventId } from "../src/contract/ids.ts";
import { DAY_MS } from "../src/contract/time.ts";
import { RESPONSE_KEPT_BYTES } from "../src/webhooks/exchange.ts";
import { openPortalSession } from "../test/node/support/portal-session.ts";
import type { Samples } from "./figures.ts";
import * as setting from "./setting.ts";
import { quantile } from "./statistics.ts";

/** How often the attacker opens its dearest page; the portal takes no more from one address. */
const EVERY_MS = 200;
/** What the page counts: a week of deliveries, each day's up to the most that is counted. */
const DAYS = 7;

const EXTENTS = {
  full: { rounds: 5, perDay: 1_100, sampleMs: 6_000 },
  quick: { rounds: 1, perDay: 1_100, sampleMs: 6_000 },
  smoke: { rounds: 1, perDay: 10, sampleMs: 500 },
};

/**
 * What somebody's dearest page costs someone else's reads: a subscription's, in the portal, opened five
 * times a second. One subscription has attempts without an answer, the other has the longest answers that
 * are kept. Rounds alternate.
 */
export async function measureAttacked(extent: setting.Extent): Promise<Samples> {
  const { rounds, perDay, sampleMs } = EXTENTS[extent];
  const runtime = await setting.start("shipped");
  const reader = await setting.openWorkspace(runtime);
  await setting.recordLeads(runtime, reader.workspaceId, 25);
  const small = await openPage(runtime, perDay, 0);
  const swollen = await openPage(runtime, perDay, RESPONSE_KEPT_BYTES + 300);
  const sample = async (page: Page | null) => {
    const end = performance.now() + sampleMs;
    const isOver = () => performance.now() > end;
    const [times] = await Promise.all([
      setting.readUntil(runtime, reader.apiKey, isOver),
      page && openUntil(runtime, page, isOver),
    ]);
    return quantile(times, 0.99);
  };
  await sample(null);
  const ratios = {
    attacked_read_p99_ratio: [] as number[],
    swollen_read_p99_ratio: [] as number[],
  };
  for (let i = 0; i < rounds; i++) {
    const [quiet, beside, besideSwollen] = [
      await sample(null),
      await sample(small),
      await sample(swollen),
    ];
    ratios.attacked_read_p99_ratio.push(beside / quiet);
    ratios.swollen_read_p99_ratio.push(besideSwollen / quiet);
  }
  await runtime.stop();
  return ratios;
}

type Page = Awaited<ReturnType<typeof openPage>>;

/** A subscription with a week of deliveries, each of whose attempts has this many bytes of an answer. */
async function openPage(runtime: Runtime, perDay: number, bytes: number) {
  const { env, url } = runtime;
  const { workspaceId, apiKey } = await setting.openWorkspace(runtime, [
    "https://hooks.example.com",
  ]);
  const webhooks = await setting.call(runtime, "/v1/webhooks", { apiKey });
  const { data } = (await webhooks.json()) as { data: { id: string }[] };
  const webhookId = data[0]?.id ?? "";
  const now = Date.now();
  for (let day = 0; day < DAYS; day++) {
    const at = now - day * DAY_MS - perDay;
    const ids = JSON.stringify(Array.from({ length: perDay }, (_, i) => newEventId(at + i)));
    await env.DB.batch([
      env.DB.prepare(
        `INSERT INTO events (workspace_id, id, type, body, owed, created_at)
        SELECT ?1, value, 'lead.created', '{}', ?2, ?3 + key FROM json_each(?4)`,
      ).bind(workspaceId, JSON.stringify([webhookId]), at, ids),
      env.DB.prepare(
        `INSERT INTO deliveries
          (subscription_id, event_id, workspace_id, type, state, attempts, due_at, settled_at)
        SELECT ?1, value, ?2, 'lead.created', 'delivered', 2, ?3, ?3 FROM json_each(?4)`,
      ).bind(webhookId, workspaceId, at, ids),
      env.DB.prepare(
        `INSERT INTO attempts
          (subscription_id, event_id, attempt, at, outcome, status, duration_ms, response)
        SELECT ?1, value, 1, ?2, 'answered', 500, 9, iif(?3 > 0, randomblob(?3), NULL) FROM json_each(?4)`,
      ).bind(webhookId, at, bytes, ids),
    ]);
  }
  const link = await env.PLATFORM.createPortalLink({ workspaceId });
  const token = await openPortalSession(new URL(`/portal${new URL(String(link.url)).hash}`, url));
  return { webhookId, token };
}

async function openUntil(runtime: Runtime, { webhookId, token }: Page, isOver: () => boolean) {
  const answers: Promise<unknown>[] = [];
  while (!isOver()) {
    answers.push(setting.call(runtime, `/portal/api/webhooks/${webhookId}`, { apiKey: token }));
    await setting.sleep(EVERY_MS);
  }
  await Promise.all(answers);
}
