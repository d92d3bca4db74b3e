import { ENCRYPTION_KEYS } from "../../../scripts/shared/runtime.ts";
import { HOUR_MS, MINUTE_MS } from "../../../src/contract/time.ts";
import type { Fault } from "../../support/service-faults.ts";
import { liveThrough } from "./day.ts";
import { deploy } from "./deployment.ts";
import { openEndpoints } from "./endpoints.ts";
import { checkCommit, checkEnd, checkNotLeftBehind, SENDABLE_AT } from "./invariants.ts";
import { findDifference } from "./model.ts";
import { type Figures, pickScenario, type Scenario } from "./scenarios.ts";
import { Store } from "./store.ts";
import { openWork } from "./work.ts";
import type { LoadedWorker } from "./worker.ts";
import { Violation, World } from "./world.ts";

/** In which everything must settle once only endpoints fail: what fails is exhausted after 84 hours. */
const SETTLED_WITHIN_MS = 10 * 24 * HOUR_MS;

/**
 * How long an endpoint that responds at once waits for an event, whatever other endpoints do. With a few consumers at once,
 * it also waits for the batches of others, each of which holds its consumer for two seconds.
 */
const PROMPT_MS = 20_000;

/** The result of one seed. */
export interface SimulationResult {
  seed: number;
  /** The violation; null if every invariant held. */
  violation: string | null;
  history: string[];
  events: number;
  requests: number;
  deaths: number;
  /** How D1 has failed. */
  injected: Set<Fault>;
  /** True time that passed in the world. */
  simulatedMs: number;
}

/** One that the real code has lived in. */
export type Life = ReturnType<typeof openLife>;

/**
 * Simulates the world of a seed. Every third one is a scenario (scenarios.ts), which the real code must live through as
 * the model says. The others have some hours of work and faults, then days in which everything must settle. Every seventh
 * of these is harsh, and every fifth has three databases, between which workspaces move.
 */
export async function simulate(seed: number, worker: LoadedWorker): Promise<SimulationResult> {
  const isScenario = seed % 3 === 0;
  const life = openLife(seed, worker, isScenario || seed % 5 !== 0 ? 1 : 3);
  if (!isScenario) return run(seed, life, () => liveWithFaults(life, worker));
  const scenario = pickScenario(life.world.chance);
  life.world.note(JSON.stringify(scenario));
  return run(seed, life, async () => {
    const figures = await liveThrough(scenario, life);
    const difference = findDifference(figures, scenario);
    if (difference) throw new Violation(`in its scenario, ${difference}`);
  });
}

/** The figures of the real code in a scenario. @throws Violation if an invariant does not hold. */
export async function measure(
  scenario: Scenario,
  seed: number,
  worker: LoadedWorker,
): Promise<Figures> {
  const life = openLife(seed, worker, 1);
  let figures: Figures | undefined;
  const { violation } = await run(seed, life, async () => {
    figures = await liveThrough(scenario, life);
  });
  if (!figures) throw new Violation(`${scenario.name}: ${violation}`);
  return figures;
}

function openLife(seed: number, worker: LoadedWorker, databases: number) {
  const world = new World(seed, seed % 7 === 0 && seed % 3 !== 0);
  const restore = world.install();
  const store = new Store(world, databases);
  const endpoints = openEndpoints(world, store);
  const deployment = deploy(world, store, worker);
  return { world, store, endpoints, deployment, restore };
}

async function run(
  seed: number,
  { world, store, endpoints, restore }: Life,
  live: () => Promise<void>,
): Promise<SimulationResult> {
  const startedAt = world.now;
  let violation: string | null = null;
  try {
    await live();
  } catch (error) {
    if (!(error instanceof Violation)) throw error;
    violation = error.message;
  } finally {
    restore();
  }
  const [count] = store.rows<{ n: number }>("SELECT count(*) AS n FROM events");
  store.close();
  return {
    seed,
    violation,
    history: world.history,
    events: count?.n ?? 0,
    requests: endpoints.sent.length,
    deaths: world.history.filter((line) => line.endsWith(" dies")).length,
    injected: store.injected,
    simulatedMs: world.now - startedAt,
  };
}

/** Hours of work and faults, then days in which everything must settle. @throws Violation if an invariant does not hold. */
async function liveWithFaults(life: Life, worker: LoadedWorker): Promise<void> {
  const { world, store, endpoints, deployment } = life;
  const work = openWork(life, worker);
  store.onCommit = () => world.guard(() => checkCommit(store));
  let isWorking = true;
  let hasFaults = true;
  work.happen().then(
    () => (isWorking = false),
    (error) => world.fail(error),
  );
  passMinutes();
  await world.run(() => !isWorking);
  world.note("— the work is over, faults end —");
  world.endFaults();
  hasFaults = false;
  endpoints.recover();
  await settle(10 * MINUTE_MS);
  await checkPrompt();
  await settle(5 * HOUR_MS);
  await checkEnd(store, ENCRYPTION_KEYS, endpoints.sent);

  /** Lets time pass until nothing is pending, and what is still in progress has ended. */
  async function settle(quietMs: number): Promise<void> {
    const settledBy = world.now + SETTLED_WITHIN_MS;
    let seen = -1;
    await world.run(() => {
      if (world.now > settledBy) return true;
      if (seen === store.commits) return false;
      seen = store.commits;
      return store.rows("SELECT 1 FROM deliveries WHERE state = 'pending' LIMIT 1").length === 0;
    });
    const quietAt = world.now + quietMs;
    await world.run(() => world.now > quietAt);
  }

  /** Whoever else there is, an endpoint that responds at once is sent to at once. */
  async function checkPrompt(): Promise<void> {
    const fine = store
      .rows<{ id: string; url: string }>(
        "SELECT id, url FROM subscriptions WHERE disabled_at IS NULL AND deleted_at IS NULL AND circuits = '{}' AND NOT slow",
      )
      .filter(({ url }) => endpoints.behaviourOf(url) === "fine");
    const before = new Set(store.committedAt.keys());
    let isRecorded = false;
    work.recordEverywhere().then(
      () => (isRecorded = true),
      (error) => world.fail(error),
    );
    const until = world.now + 2 * MINUTE_MS;
    await world.run(() => isRecorded && world.now > until);
    for (const { id } of fine)
      for (const { eventId, startedAt } of endpoints.sent.filter(
        (one) => one.subscriptionId === id,
      )) {
        const waitedMs = startedAt - (store.committedAt.get(eventId) ?? 0);
        if (deployment.isOfFullSize && !before.has(eventId) && waitedMs > PROMPT_MS)
          throw new Violation(`${id} responds at once, and waited ${waitedMs} ms for ${eventId}`);
      }
  }

  /** The scheduled job runs each minute; here only in those in which it could have something to do. */
  function passMinutes(minute = 0): void {
    if (!hasFaults) world.guard(() => checkNotLeftBehind(store, endpoints.sent));
    const isRegular = minute % (hasFaults ? 10 : 180) === 0;
    if (isRegular || store.isAnybodyMoving() || (!hasFaults && isAnythingLate()))
      deployment.runScheduledJob();
    world.after(MINUTE_MS, () => passMinutes(minute + 1));
  }

  function isAnythingLate(): boolean {
    const sql = `SELECT 1 FROM deliveries AS d JOIN subscriptions AS s ON s.id = d.subscription_id
      WHERE d.state = 'pending' AND (s.has_to_end OR max(${SENDABLE_AT}, s.leased_until) < ?) LIMIT 1`;
    return store.rows(sql, world.now - MINUTE_MS).length > 0;
  }
}
