import { z } from "@hono/zod-openapi";
import type { Unstable_Config } from "wrangler";
import type { Cloudflare } from "../shared/cloudflare.ts";
import type { FoundQueue } from "../shared/queues.ts";
import { print } from "../shared/terminal.ts";
import type { FoundDatabase } from "./databases.ts";

/** The resources of the account that a configuration names, in words. */
export function resourcesIn({
  name,
  d1_databases,
  queues,
  routes = [],
}: Unstable_Config): string[] {
  const databases = d1_databases.flatMap(({ database_name, database_id }) => [
    `the database ${database_name}`,
    ...(database_id ? [`the database ${database_id}`] : []),
  ]);
  const addresses = routes.map((route) => (typeof route === "string" ? route : route.pattern));
  return [
    `the Worker ${name}`,
    ...databases,
    ...queueNames({ queues }).map((queue) => `the queue ${queue}`),
    ...addresses.map((address) => `the route ${address}`),
  ];
}

/** The queues that a configuration sends to or consumes. */
export function queueNames({ queues }: Pick<Unstable_Config, "queues">): string[] {
  const sent = queues.producers?.map(({ queue }) => queue) ?? [];
  const consumed = queues.consumers?.map(({ queue }) => queue);
  return [...new Set([...sent, ...(consumed ?? [])])].filter((name) => typeof name === "string");
}

/** @throws Error if an environment uses something of production's. */
export function refuseShared(
  env: string,
  environment: Unstable_Config,
  production: Unstable_Config,
): void {
  const taken = new Set(resourcesIn(production));
  const shared = resourcesIn(environment).find((resource) => taken.has(resource));
  if (shared)
    throw new Error(`[env.${env}] uses ${shared}, which is production's: nothing was deployed.`);
}

/**
 * @param jurisdiction where everything stored should be; empty: in no jurisdiction.
 * @param closed the bindings of databases that workspaces are to leave, wherever these are.
 * @throws Error if a database or a queue is elsewhere, because neither can be moved.
 */
export function expectPlaced(
  databases: FoundDatabase[],
  queues: FoundQueue[],
  jurisdiction: string,
  closed: string[],
): void {
  const isElsewhere = (each: { jurisdiction: string | undefined }) =>
    each.jurisdiction !== undefined && each.jurisdiction !== jurisdiction;
  const open = databases.filter(({ binding }) => !closed.includes(binding));
  const existing = queues.filter(({ id }) => id !== null);
  const misplaced = [
    ...open.filter(isElsewhere).map(({ name }) => `the database ${name}`),
    ...existing.filter(isElsewhere).map(({ name }) => `the queue ${name}`),
  ];
  if (misplaced.length === 0) return;
  const place = jurisdiction === "" ? "stored in no jurisdiction" : `stored in ${jurisdiction}`;
  throw new Error(
    `Not ${place}, and immovable: ${misplaced.join(", ")}. See docs/deploying.md, What a deployment does. Nothing was deployed.`,
  );
}

/** Creates the queues that do not exist. Wrangler would create them without a jurisdiction. */
export async function makeQueues(
  { call }: Cloudflare,
  queues: FoundQueue[],
  jurisdiction: string,
): Promise<void> {
  for (const { name, id } of queues) {
    if (id !== null) continue;
    print(`Creating the queue ${name}.`);
    const place = jurisdiction && { jurisdiction };
    await call(z.unknown(), "POST", "/queues", { queue_name: name, ...place });
  }
}
