import { env } from "cloudflare:workers";
import { beforeEach, describe, expect, test, vi } from "vitest";
import { randomId } from "../../src/contract/ids.ts";
import { MINUTE_MS } from "../../src/contract/time.ts";
import { findServiceHealth } from "../../src/service-health.ts";
import { sweep } from "../../src/sweep.ts";
import { deployedWith, openWorkspace, Platform, send } from "../support/api.ts";
import {
  announceLeads,
  answered,
  dispatchAt,
  failingSince,
  isolated,
  observedDatabase,
  owed,
  setSubscription,
  subscribe,
} from "../support/deliveries.ts";
import { interposed } from "../support/interposed.ts";
import { keepLog } from "../support/log-lines.ts";
import { insertWorkspaces } from "../support/rows.ts";
import { shortenTimers } from "../support/timers.ts";

const lines = keepLog();

/** A database that never answers. */
const HANGING = interposed(env.DB, never);
function never() {
  return new Promise<never>(() => {});
}

/** Does what a request without a memory of earlier ones gets. */
function ask(overrides: Partial<Env> = {}, method = "GET") {
  // The memory is the database binding's.
  const DB = overrides.DB ?? observedDatabase().DB;
  return send("/health", { method }, deployedWith({ ...overrides, DB }));
}

const WELL = { healthy: true, problems: [] };
const ill = (problem: string) => ({ healthy: false, problems: [problem] });

beforeEach(async () => {
  // How long a database may take.
  shortenTimers(3_000);
  await env.DB.prepare("DELETE FROM sweep_positions").run();
});

test("GET /health names the version that responds, whether the service is healthy or not", async () => {
  const { id } = env.CF_VERSION_METADATA;
  expect(id).not.toBe("");
  for (const DB of [env.DB, HANGING])
    expect((await ask({ DB })).headers["x-service-version"]).toBe(id);
});

describe("health", () => {
  test("is good in a new deployment, and after a sweep", async () => {
    expect(await Platform.health({})).toEqual(WELL);
    await openWorkspace();
    await sweep(isolated().env, Date.now());
    expect(await Platform.health({})).toEqual(WELL);
    expect(lines.map((line) => JSON.parse(line))).toContainEqual({
      event: "health",
      healthy: true,
      problems: "",
    });
  });

  test("does not call a backlog stuck between two dispatches that work it off", async () => {
    const now = Date.now();
    const { id } = await owed(2, now - 12 * MINUTE_MS);
    const stuck = async (at: number) =>
      (await findServiceHealth(env, at)).problems.filter((problem) => problem.includes("stuck"));
    expect(await stuck(now)).toHaveLength(1);
    const lastAttempt = { at: now, outcome: "answered", status: 200, durationMs: 9 };
    await setSubscription(id, { lastAttempt });
    const problems = await stuck(now + 1_000);
    // Otherwise, the other tests would find a late delivery.
    await dispatchAt(now + 1_000, [id], answered(200));
    expect(problems).toEqual([]);
  });

  test("tells that the sweep has not run for three minutes without a failure, or never", async () => {
    await openWorkspace();
    const now = Date.now();
    await sweep(isolated().env, now);
    expect(await findServiceHealth(env, now + 3 * MINUTE_MS)).toEqual(WELL);
    const failing = isolated({ EVENTS_KEPT_MAX: "none" as never }).env;
    await expect(sweep(failing, now + 4 * MINUTE_MS)).rejects.toThrow("jobs of the sweep failed");
    expect(lines.some((line) => /"event":"health","healthy":false/.test(line))).toBe(true);
    const late = ill("DB: the scheduled job last ran without a failure 4 minutes ago");
    expect(await findServiceHealth(env, now + 4 * MINUTE_MS)).toEqual(late);
    // The next run, in which no job fails, is healthy.
    lines.length = 0;
    await sweep(isolated().env, now + 4 * MINUTE_MS);
    expect(lines.some((line) => /"event":"health","healthy":true/.test(line))).toBe(true);
    await env.DB.prepare("DELETE FROM sweep_positions").run();
    await insertWorkspaces([{ id: randomId("workspace"), createdAt: now + 4 * MINUTE_MS }], env.DB);
    const never = ill("DB: the scheduled job has never run");
    expect(await findServiceHealth(env, now + 4 * MINUTE_MS)).toEqual(never);
  });

  test("tells that deliveries are overdue, unless a dispatch is on them or they wait for a retry", async () => {
    const { workspaceId } = await openWorkspace();
    const { id } = await subscribe(workspaceId);
    const now = Date.now();
    await announceLeads(workspaceId, 1, now - 8 * MINUTE_MS);
    expect(await findServiceHealth(env, now)).toEqual(WELL);
    await announceLeads(workspaceId, 3, now - 12 * MINUTE_MS);
    const overdue = ill("DB: deliveries to 1 webhooks are stuck: due for more than 10 minutes");
    expect(await findServiceHealth(env, now)).toEqual(overdue);
    for (const [held, free] of [
      [{ leasedUntil: now + 1_000 }, { leasedUntil: 0 }],
      [failingSince(now, 1, now + 1_000), { circuits: {} }],
    ]) {
      await setSubscription(id, held ?? {});
      expect(await findServiceHealth(env, now)).toEqual(WELL);
      await setSubscription(id, free ?? {});
      expect(await findServiceHealth(env, now)).toEqual(overdue);
    }
    await Platform.eraseWorkspace({ workspaceId });
    expect(await findServiceHealth(env, now)).toEqual(WELL);
  });

  test("tells that a database is nearly full", async () => {
    const DB = interposed(env.DB, async ({ go }) => {
      const answer = await go();
      for (const { meta } of [answer].flat()) if (meta) meta.size_after = 8.15e9;
      return answer;
    });
    const full = ill("DB: 81% full");
    expect(await findServiceHealth({ ...env, DB }, Date.now())).toEqual(full);
  });

  test("tells that a migration of this version is missing", async () => {
    const names = env.DB.prepare("SELECT name FROM d1_migrations ORDER BY name DESC");
    const { results } = await names.all<{ name: string }>();
    const [{ name } = { name: "" }] = results;
    await env.DB.prepare("DELETE FROM d1_migrations WHERE name = ?").bind(name).run();
    expect(await findServiceHealth(env, Date.now())).toEqual(
      ill(`DB: the migration ${name} is missing`),
    );
    await env.DB.prepare("INSERT INTO d1_migrations (name) VALUES (?)").bind(name).run();
    expect(await findServiceHealth(env, Date.now())).toEqual(WELL);
  });

  test("tells that a database does not respond", async () => {
    const silent = ill("DB does not respond");
    expect(await findServiceHealth({ ...env, DB: HANGING }, Date.now())).toEqual(silent);
  });
});

describe("GET /health", () => {
  test("says that the service works, and is stored nowhere", async () => {
    const { status, headers, body } = await ask();
    expect({ status, body }).toEqual({ status: 200, body: { status: "ok" } });
    expect(headers["cache-control"]).toBe("no-store");
    expect(headers).toHaveProperty("x-ratelimit-limit");
    expect((await ask({}, "HEAD")).status).toBe(200);
    expect((await ask({}, "POST")).status).toBe(404);
  });

  test("repeats what the last sweep found, for three minutes, and reads one row for it", async () => {
    const now = Date.now();
    const { workspaceId } = await openWorkspace();
    const moveTo = (database: string | null) =>
      env.DB.prepare("UPDATE workspaces SET database = ? WHERE id = ?")
        .bind(database, workspaceId)
        .run();
    await moveTo("DB_9");
    await sweep(isolated().env, now);
    await moveTo(null);
    expect((await ask()).status).toBe(503);
    await sweep(isolated().env, now);
    const { DB, trips } = observedDatabase();
    expect([(await ask({ DB })).status, trips.length]).toEqual([200, 1]);
    for (const [ms, status] of [
      [3 * MINUTE_MS, 200],
      [3 * MINUTE_MS + 1, 503],
    ] as const) {
      vi.useFakeTimers({ toFake: ["Date"], now: now + ms });
      expect((await ask()).status).toBe(status);
    }
    vi.useRealTimers();
  });

  test("responds with 503 and nothing else of ours if it does not, to all who ask at once in a new isolate", async () => {
    const DB: D1Database = Object.create(HANGING);
    for (const { status, headers, body } of await Promise.all([ask({ DB }), ask({ DB })])) {
      expect({ status, body }).toEqual({ status: 503, body: null });
      expect(headers["cache-control"]).toBe("no-store");
    }
  });

  test("asks the databases once a second at most, however many ask, in a new isolate too", async () => {
    const first = observedDatabase();
    await ask({ DB: first.DB });
    const once = first.trips.length;
    expect(once).toBeGreaterThan(0);
    const { DB, trips } = observedDatabase();
    const answers = await Promise.all(Array.from({ length: 20 }, () => ask({ DB })));
    expect(new Set(answers.map(({ status }) => status))).toEqual(new Set([200]));
    // Twice if the first look takes a second.
    expect(trips.length).toBeLessThanOrEqual(2 * once);
  });

  test.each([
    ["repeats what it knew five seconds ago", 5_000, 200],
    ["does not repeat what it knew six seconds ago", 6_000, 503],
  ])("%s while somebody else looks", async (_, laterMs, status) => {
    let isFailing = false;
    const { DB } = observedDatabase({ before: () => (isFailing ? never() : undefined) });
    await ask({ DB });
    isFailing = true;
    vi.useFakeTimers({ toFake: ["Date"], now: Date.now() + laterMs });
    const looking = ask({ DB });
    expect((await ask({ DB })).status).toBe(status);
    expect((await looking).status).toBe(503);
    vi.useRealTimers();
    expect((await ask({ DB })).status).toBe(503);
  });
});
