import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { sweep } from "../../src/sweep.ts";
import { continueMove, moveWorkspace } from "../../src/workspaces/moving/move.ts";
import { errorOf } from "../support/api.ts";
import { type DatabaseName, deploymentWith, rowsIn, valueIn } from "../support/databases.ts";
import { CONNECTION_LOST, isolated } from "../support/deliveries.ts";
import { failingDatabase } from "../support/failing.ts";
import type { Moment } from "../support/hanging.ts";
import { keepLog } from "../support/log-lines.ts";
import {
  allDelivered,
  beginMoving,
  cleanUp,
  copyAll,
  dieClosed,
  expireLeases,
  hangMover,
  moved,
  openWithLeads,
  placementOf,
} from "../support/moves.ts";

const lines = keepLog();
const always = () => true;

/** The state of a workspace's move in a database, and how often it has failed there. */
const moveOf = async (workspaceId: string, name: DatabaseName = "DB_2") => {
  const sql = "SELECT state, failures FROM moves WHERE workspace_id = ?";
  return (await rowsIn(name, sql, workspaceId))[0] ?? null;
};

/** The states that a workspace's move has entered. */
const entered = (workspaceId: string) =>
  lines
    .map((line) => JSON.parse(line))
    .filter((line) => line.event === "move" && line.workspaceId === workspaceId)
    .map(({ state }) => state);

/** The deployment whose databases lose the reply to each transaction of a kind, the first time. */
function losingReplies(isLost: (sql: string) => boolean): Env {
  const seen = new Set<string>();
  const losing = (name: DatabaseName) =>
    failingDatabase(name, async (sql, go) => {
      const result = await go();
      if (seen.has(name + sql) || !isLost(sql)) return result;
      seen.add(name + sql);
      throw CONNECTION_LOST;
    });
  const losers = { DB: losing("DB"), DB_2: losing("DB_2"), DB_3: losing("DB_3") };
  return { ...isolated().env, ...losers };
}

describe("a mover whose replies are lost", () => {
  test("finishes the move in one call, because it recognises its own earlier tries", async () => {
    const { workspaceId, ids, leadIds } = await openWithLeads();
    const bindings = losingReplies((sql) => /insert|update|delete/i.test(sql));
    const done = { done: true, state: null };
    expect(await moveWorkspace(bindings, workspaceId, "DB_3", always)).toEqual(done);
    expect(entered(workspaceId)).toEqual(["draining", "closed", "gone"]);
    expect(await leadIds()).toEqual(ids);
  });

  test("cancels a move that it is asked to cancel", async () => {
    const { workspaceId } = await openWithLeads();
    await copyAll(workspaceId);
    const bindings = losingReplies((sql) => /delete from "moves"/i.test(sql));
    const done = { done: true, state: null };
    expect(await moveWorkspace(bindings, workspaceId, "DB_2", always)).toEqual(done);
    expect(entered(workspaceId).at(-1)).toBe("cancelled");
  });
});

/** On a busy machine, draining takes longer than the second that is waited for otherwise. */
const BUSY = { interval: 5, timeout: 10_000 };

describe("a switch that fails", () => {
  /** Transactions of a switch, but not those that take over the directory's entry before it. */
  const isSwitching = (sql: string) => /update "workspaces" set (?!"moved_by")/.test(sql);
  const full = new Error("D1_ERROR: Exceeded maximum DB size: SQLITE_FULL");
  type Fail = (go: () => Promise<unknown>) => Promise<never>;
  const failing = (name: DatabaseName, fail: Fail) =>
    failingDatabase(name, (sql, go) => (isSwitching(sql) ? fail(go) : go()));

  test.each([
    ["because the target is full", 0, 1],
    ["because nothing answers, and everything takes effect later", 1, 2],
  ])("%s: it goes back while writes wait, and is tried again", async (_, failures, waitMinutes) => {
    const { workspaceId, ids, leadIds, record, livesIn } = await openWithLeads();
    await copyAll(workspaceId);
    const setFailures = "UPDATE moves SET failures = ? WHERE workspace_id = ?";
    await rowsIn("DB_2", setFailures, failures, workspaceId);
    const late: (() => Promise<unknown>)[] = [];
    const hang: Fail = (go) => {
      late.push(go);
      return new Promise(() => {});
    };
    const bindings = deploymentWith(
      failures === 0
        ? { DB_3: failing("DB_3", () => Promise.reject(full)) }
        : { DB: failing("DB", hang), DB_2: failing("DB_2", hang), DB_3: failing("DB_3", hang) },
    );
    const moving = errorOf(moveWorkspace(bindings, workspaceId, "DB_3", always));
    await expect.poll(() => entered(workspaceId), BUSY).toContain("closed");
    await record();
    expect(await moving).toMatch(failures === 0 ? /SQLITE_FULL/ : /DB_3 does not answer/);
    const goesBack = { state: "copying", failures: failures + 1 };
    expect(await moveOf(workspaceId)).toEqual(goesBack);
    const readUntil = "SELECT moved_until FROM moves WHERE workspace_id = ?";
    const until = (await valueIn<number>("DB_2", readUntil, workspaceId)) ?? 0;
    expect(Math.round((until - Date.now()) / 60_000)).toBe(waitMinutes);
    await Promise.allSettled(late.map((go) => go()));
    expect(late).toHaveLength(failures);
    expect(await placementOf(workspaceId)).toBe("DB_2");
    expect(await leadIds()).toEqual(ids);
    await allDelivered(workspaceId, ids.length);
    // Not at once, but by a call.
    await sweep(isolated().env, Date.now());
    expect(await moveOf(workspaceId)).toEqual(goesBack);
    if (failures === 0) await expireLeases();
    else await moved(workspaceId, "DB_3");
    await sweep(isolated().env, Date.now());
    await livesIn("DB_3");
  });

  test("goes back even if the directory's reply to the switch did not arrive, unless it was made", async () => {
    const { workspaceId, livesIn } = await openWithLeads();
    await copyAll(workspaceId);
    let hasSwitched = false;
    const DB = failingDatabase("DB", async (sql, go) => {
      const result = await go();
      if (!/update "workspaces" set "database"/.test(sql)) return result;
      hasSwitched = true;
      return new Promise<never>(() => {});
    });
    await moveWorkspace(deploymentWith({ DB }), workspaceId, "DB_3", () => !hasSwitched);
    expect(entered(workspaceId).slice(-2)).toEqual(["closed", "gone"]);
    await livesIn("DB_3");
  });
});

describe("a workspace whose mover died while it was closed", () => {
  test("is opened where it was by whoever cancels the move", async () => {
    const { workspaceId, ids, leadIds, record } = await openWithLeads();
    await dieClosed(workspaceId);
    expect(await moveOf(workspaceId)).toMatchObject({ state: "closed" });
    const recording = record();
    await moved(workspaceId, "DB_2");
    await recording;
    expect(await leadIds()).toEqual(ids);
    await cleanUp();
    expect(await moveOf(workspaceId, "DB_3")).toBeNull();
    await moved(workspaceId, "DB_3");
    expect(await leadIds()).toEqual(ids);
  });

  test("stays open where it has arrived, even if that is the directory's database", async () => {
    const { workspaceId, livesIn } = await openWithLeads();
    let isOpen = false;
    const DB = failingDatabase("DB", async (sql, go) => {
      const result = await go();
      isOpen ||= /delete from "moves"/.test(sql);
      return result;
    });
    const DB_2 = failingDatabase("DB_2", (_, go) => (isOpen ? new Promise(() => {}) : go()));
    void moveWorkspace(deploymentWith({ DB, DB_2 }), workspaceId, "DB", always).catch(() => {});
    await expect.poll(() => isOpen, { interval: 20, timeout: 10_000 }).toBe(true);
    await expireLeases();
    expect(await moveOf(workspaceId)).toMatchObject({ state: "closed" });
    await sweep(isolated().env, Date.now());
    expect(await moveOf(workspaceId)).toMatchObject({ state: "gone" });
    await livesIn("DB");
  });

  test("is opened by the next sweep, even if the target is unreachable", async () => {
    const { workspaceId, record } = await openWithLeads();
    await dieClosed(workspaceId);
    const DB_3 = failingDatabase("DB_3", () => new Promise<never>(() => {}));
    const recording = record();
    void sweep({ ...isolated().env, DB_3 } as Env, Date.now()).catch(() => {});
    await recording;
    expect(await moveOf(workspaceId)).toEqual({ state: "copying", failures: 1 });
    await moved(workspaceId, "DB_2");
  });
});

describe("a move that has begun", () => {
  const BEGUN: Moment = ["DB_3", /insert into "workspaces"/];

  test("is continued by the sweep if whoever began it died before the target was told", async () => {
    const { workspaceId, livesIn } = await openWithLeads();
    const half = await hangMover(workspaceId, BEGUN);
    expect(await moveOf(workspaceId, "DB_3")).toBe(null);
    await sweep(isolated().env, Date.now());
    await livesIn("DB_3");
    await half.release();
  });

  test("leaves nothing at the target if it is told only after the move was cancelled", async () => {
    const { workspaceId } = await openWithLeads();
    const half = await hangMover(workspaceId, BEGUN);
    await moved(workspaceId, "DB_2");
    await half.release();
    expect(await moveOf(workspaceId, "DB_3")).toMatchObject({ state: "arriving" });
    await sweep(isolated().env, Date.now());
    expect(await moveOf(workspaceId, "DB_3")).toBeNull();
    await moved(workspaceId, "DB_3");
  });

  test("keeps what it has copied while the sweeps of the target ask about it", async () => {
    const { workspaceId, livesIn } = await openWithLeads();
    await beginMoving(workspaceId, 5);
    await continueMove(env, "DB_3", workspaceId, always);
    expect(await moveOf(workspaceId, "DB_3")).toMatchObject({ state: "arriving" });
    await moved(workspaceId, "DB_3");
    await livesIn("DB_3");
  });
});

describe("the gates of a workspace's keys", () => {
  type Forget = (told: string, forget: () => Promise<void>) => Promise<void>;

  /** The deployment with gates that are told like this. */
  const withGates = (tell: Forget): Env => ({
    ...env,
    KEY_GATE: {
      getByName: (name: string) => {
        const gate = env.KEY_GATE.getByName(name);
        return { forget: () => tell(name, async () => gate.forget()) };
      },
    } as unknown as Env["KEY_GATE"],
  });

  test("delay a move, but no write, if one is overloaded or hangs", async () => {
    const overloaded = Object.assign(new Error("busy"), { overloaded: true });
    const delay = async (tell: Forget, message: string) => {
      const { workspaceId, record } = await openWithLeads();
      const moving = moveWorkspace(withGates(tell), workspaceId, "DB_3", always);
      expect(await errorOf(moving)).toBe(message);
      expect(await moveOf(workspaceId)).toEqual({ state: "copying", failures: 0 });
      await record();
      await allDelivered(workspaceId, 4);
      await moved(workspaceId, "DB_3");
    };
    await Promise.all([
      delay(() => Promise.reject(overloaded), "busy"),
      delay(() => new Promise(() => {}), "the gate of a key does not answer"),
    ]);
  });

  test("are told once each, a few at a time and before writes wait, however often that is interrupted", async () => {
    const { workspaceId, ids, leadIds } = await openWithLeads();
    // Keys that have been used.
    const insert = `INSERT INTO api_keys (id, workspace_id, key_hash, created_at, last_used_at)
      SELECT 'key_' || value || ?1, ?1, 'hash_' || value || ?1, 1, 1 FROM json_each(?2)`;
    await rowsIn("DB", insert, workspaceId, JSON.stringify([...Array(300).keys()]));
    const told: string[] = [];
    let [atOnce, mostAtOnce, isDown] = [0, 0, true];
    const bindings = withGates(async (name, forget) => {
      mostAtOnce = Math.max(mostAtOnce, ++atOnce);
      await new Promise((resolve) => setTimeout(resolve, 20));
      atOnce--;
      told.push(name);
      if (!name.startsWith("hash_")) await forget();
      if (told.length === 180 && isDown) throw new Error("busy");
    });
    expect(await errorOf(moveWorkspace(bindings, workspaceId, "DB_3", always))).toBe("busy");
    isDown = false;
    // The target fails at the switch, too.
    const DB_3 = failingDatabase("DB_3", (sql, go) =>
      /update "workspaces"/.test(sql) ? Promise.reject(new Error("full")) : go(),
    );
    const failing = moveWorkspace({ ...bindings, DB_3 } as Env, workspaceId, "DB_3", always);
    expect(await errorOf(failing)).toBe("full");
    const toldBefore = told.length;
    await moveWorkspace(bindings, workspaceId, "DB_3", always);
    expect(told.length).toBe(toldBefore);
    expect(new Set(told).size).toBe(301);
    // Only those beside the one that failed.
    expect(told.length).toBeLessThanOrEqual(301 + 50);
    expect(mostAtOnce).toBe(50);
    expect(await leadIds()).toEqual(ids);
  });

  test("keep no standing from when they are told until the workspace has moved, or stays", async () => {
    const { workspaceId, api, ids, record } = await openWithLeads();
    const reads = async () => (await api.get<{ data: unknown[] }>("/v1/leads")).body.data.length;
    const told = "SELECT gates_told FROM moves WHERE workspace_id = ?";
    while (!(await valueIn("DB_2", told, workspaceId))) await beginMoving(workspaceId, 2);
    expect(await reads()).toBe(ids.length);
    // Nobody tells the gate of this.
    const access = "UPDATE workspaces SET access_granted = ? WHERE id = ?";
    await rowsIn("DB_2", access, 0, workspaceId);
    expect((await api.get("/v1/leads")).status).toBe(403);
    await rowsIn("DB_2", access, 1, workspaceId);
    await moved(workspaceId, "DB_3");
    await record();
    expect(await reads()).toBe(ids.length);
  });
});
