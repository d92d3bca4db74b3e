import { env, exports } from "cloudflare:workers";
import { drizzle } from "drizzle-orm/d1";
import { describe, expect, test } from "vitest";
import { countDays } from "../../src/webhooks/days.ts";
import { takeSteps } from "../../src/webhooks/redelivery/ranges.ts";
import { deployedWith, leadReport, openWorkspace, send } from "../support/api.ts";
import * as d from "../support/deliveries.ts";
import { meteredDatabase } from "../support/metered-database.ts";
import { WORKSPACE_DB } from "../support/placement.ts";
import { storeEvents } from "../support/stored-events.ts";

const { Platform } = exports;
const lines: string[] = [];
const out = (...a: unknown[]) => void lines.push(a.join(" "));

import { afterEach } from "vitest";

afterEach(() => {
  const l = lines.splice(0);
  if (l.length) throw new Error("\n" + l.join("\n"));
});

test("E1 leads page", async () => {
  const { workspaceId, api } = await openWorkspace();
  const { ids } = await Platform.recordLeads({
    workspaceId,
    leads: [leadReport("a"), leadReport("b"), leadReport("c")],
  });
  await WORKSPACE_DB.prepare("UPDATE leads SET sealed = zeroblob(60) WHERE id = ?")
    .bind(ids[1])
    .run();
  const { status, body } = await api.get("/v1/leads");
  out("E1", status, JSON.stringify(body).slice(0, 200));
  const x = await Platform.exportWorkspace({ workspaceId }).then(
    (p) => p.items.length,
    (e) => String(e),
  );
  out("E3 export", x);
});

test("E2 dispatch", async () => {
  const { workspaceId } = await openWorkspace();
  const s = await d.subscribe(workspaceId, {});
  // Avoid the queue: record with no wake
  const { ids } = await Platform.recordLeads({ workspaceId, leads: [leadReport("x")] });
  await new Promise((r) => setTimeout(r, 1500));
  out("E2 warm", JSON.stringify(await d.statesOf(s.id)));
  await WORKSPACE_DB.prepare("UPDATE subscriptions SET next_at = ?")
    .bind(Date.now() + 1e7)
    .run();
  const more = await Platform.recordLeads({
    workspaceId,
    leads: Array.from({ length: 10 }, (_, i) => leadReport(`y${i}`)),
  });
  await WORKSPACE_DB.prepare("UPDATE leads SET sealed = zeroblob(60) WHERE id = ?")
    .bind(more.ids[0])
    .run();
  // make the bad one due first
  await WORKSPACE_DB.prepare(
    "UPDATE deliveries SET due_at = due_at - 1000 WHERE event_id = (SELECT event_id FROM leads WHERE id = ?)",
  )
    .bind(more.ids[0])
    .run();
  for (let i = 0; i < 5; i++) {
    await WORKSPACE_DB.prepare(
      "UPDATE subscriptions SET next_at = 0, posts_at_once = ? WHERE id = ?",
    )
      .bind(1, s.id)
      .run();
    await d.consumeFor([s.id], d.isolated().env);
    const r = await d.subscriptionRow(s.id);
    out("E2", i, JSON.stringify(await d.statesOf(s.id)), r.nextAt - Date.now(), r.postsAtOnce);
  }
});

test("E4 idempotency", async () => {
  const { api } = await openWorkspace();
  const body = { url: "https://hooks.example.com/a", events: ["run.completed", "lead.created"] };
  const make = () =>
    api.send("/v1/webhooks", {
      method: "POST",
      headers: { "Content-Type": "application/json", "Idempotency-Key": "k" },
      body: JSON.stringify(body),
    });
  const a = (await make()).body as any;
  await Platform.updateWebhook({
    webhookId: a.id,
    events: ["lead.created", "run.completed"],
    description: "CRM",
  });
  const b = (await make()).body as any;
  out("E4", a.id === b.id);
});

test("E5 ranges of unlisted kinds", async () => {
  const { workspaceId } = await openWorkspace();
  const s = await d.subscribe(workspaceId, { events: ["lead.created", "run.completed"] });
  const now = Date.now();
  await storeEvents(workspaceId, s.id, 3000, now - 3_600_000, "cancelled");
  const [last] = await storeEvents(workspaceId, s.id, 1, now - 1000, "cancelled");
  await WORKSPACE_DB.prepare("UPDATE events SET type = 'run.completed' WHERE id = ?")
    .bind(last)
    .run();
  await Platform.updateWebhook({ webhookId: s.id, events: ["run.completed"] });
  const since = new Date(now - 7_200_000).toISOString();
  out(
    "E5",
    JSON.stringify(
      await Platform.redeliver({ webhookId: s.id, since, states: ["cancelled", "exhausted"] }),
    ),
  );
  for (let i = 1; i < 8; i++) {
    await takeSteps(d.db, now + i * 60_000, () => true, 0);
    const r = await d.subscriptionRow(s.id);
    out("E5", i, JSON.stringify(await d.statesOf(s.id)), r.scheduledUntil - now, r.ranges?.length);
  }
});

test("E9 countDays", async () => {
  const { workspaceId } = await openWorkspace();
  const s = await d.subscribe(workspaceId, { events: ["lead.created", "run.completed"] });
  await storeEvents(workspaceId, s.id, 20000, Math.floor(Date.now() / 86400000) * 86400000, "test");
  const { DB, rows } = meteredDatabase();
  out(
    "E9",
    JSON.stringify((await countDays(drizzle(DB as any) as any, s.id, Date.now())).at(-1)),
    rows.read,
  );
});
