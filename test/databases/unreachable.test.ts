import { createExecutionContext, waitOnExecutionContext } from "cloudflare:test";
import { describe, expect, test } from "vitest";
import { commit, connect } from "../../src/db/client.ts";
import { consume } from "../../src/dispatch/consumer.ts";
import { sweep } from "../../src/sweep.ts";
import {
  deployedAs,
  leadReport,
  openApi,
  Platform as platform,
  platformOf,
} from "../support/api.ts";
import {
  databaseOf,
  deploymentWith,
  NAMES,
  openSubscribedIn,
  openWorkspaceIn,
  tablesWith,
  unreachableDatabase,
  WAYS,
} from "../support/databases.ts";
import {
  announcement,
  draftLeads,
  isolated,
  receivedBy,
  type Sent,
} from "../support/deliveries.ts";
import { keepLog } from "../support/log-lines.ts";
import { type DatabaseName, useThreeDatabases } from "../support/placement.ts";
import { shortenTimers } from "../support/timers.ts";
import { until } from "../support/until.ts";

useThreeDatabases();

const lines = keepLog();

/** The log lines with this event name. */
function logged(event: string): Record<string, unknown>[] {
  return lines.map((line) => JSON.parse(line)).filter((line) => line.event === event);
}

/** A subscribed workspace that is owed events since `now`, without a wake message. */
async function openOwed(database: DatabaseName, now = Date.now(), count = 1) {
  const subscribed = await openSubscribedIn(database);
  const drafts = draftLeads(count, now);
  const db = connect(databaseOf(database));
  await commit(db, announcement(subscribed.workspaceId, drafts, now));
  return { ...subscribed, id: subscribed.webhookId };
}

/** What `open` opens in each database. */
async function inEach<T>(open: (name: DatabaseName) => Promise<T>) {
  return [await open("DB"), await open("DB_2"), await open("DB_3")] as const;
}

/** The deployment with DB_3 unreachable and queues that keep their messages. */
function withoutThird(way: (typeof WAYS)[number]) {
  const { env: bindings, fast, slow } = isolated();
  return { env: { ...bindings, DB_3: unreachableDatabase(way) } as Env, fast, slow };
}

interface Woken {
  id: string;
  database?: unknown;
}

/** A batch of wake messages for subscriptions, and the outcome of each so far. */
function batchOf(...woken: Woken[]) {
  const fates: string[] = woken.map(() => "");
  const messages = woken.map(({ id, database }, i) => ({
    id: String(i),
    timestamp: new Date(),
    attempts: 1,
    body: { subscriptionId: id, queue: "fast" as const, database: database as string },
    ack() {
      fates[i] = "acknowledged";
    },
    retry() {
      fates[i] = "comes back";
    },
  }));
  return { messages, fates };
}

describe.each(WAYS)("while DB_3 is unreachable (it %s)", (way) => {
  test("deliveries in DB and DB_2 are made, in the same batch", async () => {
    const [first, second, third] = await inEach(openOwed);
    const deployment = withoutThird(way);
    const { messages, fates } = batchOf(third, first, second);
    const done = consume(messages, deployment.env, createExecutionContext());
    await until(() => fates.slice(1).every((fate) => fate === "acknowledged"), 5_000);
    // A slow dispatch goes on after its hints are acknowledged.
    await expect.poll(() => receivedBy(first)).toHaveLength(1);
    await expect.poll(() => receivedBy(second)).toHaveLength(1);
    expect(await receivedBy(third)).toHaveLength(0);
    await done;
    expect(fates[0]).toBe("acknowledged");
    if (way === "rejects") {
      const again = {
        subscriptionId: third.id,
        queue: "fast",
        database: "DB_3",
        delaySeconds: 20,
      };
      await expect.poll(() => deployment.fast).toContainEqual(again);
      expect(logged("dispatch_failed")).toMatchObject([{ database: "DB_3", webhookId: third.id }]);
    }
    expect(await platform.ledger({ workspaceId: third.workspaceId })).toMatchObject({ pending: 1 });
  });

  test("its wake messages do not hold up the others, however many there are", async () => {
    const third = await openOwed("DB_3");
    const deployment = withoutThird(way);
    const wake = (one: Woken) =>
      consume(batchOf(one).messages, deployment.env, createExecutionContext());
    await Promise.all(Array.from({ length: 12 }, () => wake(third)));
    const second = await openOwed("DB_2");
    await wake(second);
    // A dispatch that takes longer continues in the background.
    await expect.poll(() => receivedBy(second)).toHaveLength(1);
  });

  test("the sweep wakes the others", async () => {
    const now = Date.UTC(2029, 5, 5, 12);
    const owed = await inEach((name) => openOwed(name, now - 61_000));
    const deployment = withoutThird(way);
    const swept = sweep(deployment.env, now).catch((error: Error) => error.message);
    const woken = (sent: Sent[]) => owed.map(({ id }) => sent.find((s) => s.subscriptionId === id));
    await until(() => woken(deployment.fast).filter(Boolean).length === 2);
    const databases = woken(deployment.fast).map((hint) => hint && (hint.database ?? "DB"));
    expect(databases).toEqual(["DB", "DB_2", undefined]);
    if (way === "hangs") return;
    expect(await swept).toMatch(/^\d+ jobs of the sweep failed$/);
    const failed = logged("sweep_failed").map(({ database }) => database);
    expect(new Set(failed)).toEqual(new Set(["DB_3"]));
  });

  test("requests and calls for other databases are served", async () => {
    const [first, second, third] = await inEach(openWorkspaceIn);
    const fetch = deployedAs(deploymentWith({ DB_3: unreachableDatabase(way) }));
    for (const { apiKey } of [first, second]) {
      const api = openApi(apiKey, fetch);
      for (const path of ["/v1/automations", "/v1/leads", "/v1/runs", "/v1/webhooks"])
        expect((await api.get(path)).status).toBe(200);
      const url = "https://hooks.example/in";
      expect((await api.post("/v1/webhooks", { url, events: ["lead.created"] })).status).toBe(201);
    }
    if (way === "rejects")
      expect((await openApi(third.apiKey, fetch).get("/v1/leads")).status).toBe(500);
    const { workspaceId, keyId } = second;
    const platform = platformOf(withoutThird(way).env);
    const leads = [leadReport("1")];
    expect(await platform.recordLeads({ workspaceId, leads })).toMatchObject({ created: 1 });
    expect(await platform.setWorkspaceAccess({ workspaceId, granted: false })).toEqual({});
    expect(await platform.revokeApiKey({ keyId })).toMatchObject({ keyId });
    expect(await platform.ledger({ workspaceId })).toMatchObject({ addsUp: true });
    expect((await platform.backlog({ database: "DB" })).overdue).toEqual(expect.any(Number));
    shortenTimers(5_000);
    const erased = { done: true };
    expect(await platform.eraseWorkspace({ workspaceId })).toEqual(erased);
    for (const name of NAMES) expect(await tablesWith(name, workspaceId)).toEqual([]);
  });
});

test.each(WAYS)(
  "deliveries in DB_2 are made while the directory is unreachable: it %s",
  async (way) => {
    const second = await openOwed("DB_2");
    const bindings = { ...isolated().env, DB: unreachableDatabase(way) } as Env;
    const { messages, fates } = batchOf(second);
    const context = createExecutionContext();
    await consume(messages, bindings, context);
    await until(async () => (await receivedBy(second)).length === 1, 5_000);
    expect(fates).toEqual(["acknowledged"]);
    if (way === "rejects") await waitOnExecutionContext(context);
  },
);
