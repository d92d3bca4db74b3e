import { setTimeout as sleep } from "node:timers/promises";
import type { Victim } from "./victim.ts";

/** The databases that the workspace goes through. */
export const DATABASES = ["DB", "DB_2", "DB_3"];

/** Between two rounds of one of them. Otherwise requests are most of what the machine does, and not restarts. */
const PAUSE_MS = 100;

/** What clients and an operator do, each in turn, until `isOver`. */
interface Traffic {
  victim: Victim;
  workspaceId: string;
  apiKey: string;
  automationId: string;
  isOver: () => boolean;
}

/** @returns how often the automation was paused or activated. @throws Error at a wrong answer. */
export async function makeTraffic(traffic: Traffic): Promise<number> {
  const { victim, workspaceId, automationId, isOver } = traffic;
  let changes = 0;
  const ask = async (
    expected: number | number[],
    method: string,
    path: string,
    { apiKey = traffic.apiKey, body }: { apiKey?: string; body?: unknown } = {},
  ) => {
    const { status, text } = await victim.request(method, `/v1/${path}`, apiKey, body);
    if (![expected].flat().includes(status))
      throw new Error(`${method} ${path} answered ${status} instead of ${expected}: ${text}`);
    return text;
  };

  const read = async () => {
    for (const path of ["leads", "automations", "runs", "webhooks", `automations/${automationId}`])
      await ask(200, "GET", path);
  };

  /** Each pause and each activation is one event, however often it had to be requested. */
  const control = async () => {
    for (const status of ["paused", "active"]) {
      await ask(200, "PATCH", `automations/${automationId}`, { body: { status } });
      changes++;
    }
  };

  /** Creates and deletes subscriptions to events that never happen. */
  const subscribe = async () => {
    const body = { url: "http://127.0.0.1:9/", events: ["run.completed"] };
    await ask(201, "POST", "webhooks", { body });
    const { data } = JSON.parse(await ask(200, "GET", "webhooks?limit=100")) as {
      data: { id: string; events: string[] }[];
    };
    // If the first answer was lost, the second says that it is gone.
    for (const { id, events } of data)
      if (events[0] === "run.completed") await ask([204, 404], "DELETE", `webhooks/${id}`);
  };

  /** A key's life: it is admitted until it is revoked, and not after. */
  const handleKeys = async () => {
    const { keyId, apiKey } = await victim.platform<{ keyId: string; apiKey: string }>(
      "createApiKey",
      { workspaceId },
    );
    for (let quota = 1_000; quota < 1_010; quota++)
      await victim.platform("updateApiKey", { keyId, requestsPerWindow: quota });
    await ask(200, "GET", "automations", { apiKey });
    await victim.platform("revokeApiKey", { keyId });
    await ask(401, "GET", "automations", { apiKey });
  };

  /** Moves the workspace to a database, in as many calls as that takes. */
  const moveTo = async (database: string) => {
    let isDone = false;
    while (!isDone && !isOver()) {
      const progress = await victim.platform<{ done: boolean }>("moveWorkspace", {
        workspaceId,
        database,
      });
      isDone = progress.done;
    }
  };

  /** Moves the workspace from database to database. */
  const move = async () => {
    for (const database of DATABASES.toReversed()) {
      await moveTo(database).catch((error) => {
        // What it left there is deleted a minute later.
        if (!String(error).includes("still being deleted")) throw error;
        return sleep(1_000);
      });
      if (isOver()) return;
    }
  };

  const again = async (round: () => Promise<void>) => {
    while (!isOver()) {
      await round();
      await sleep(PAUSE_MS);
    }
  };
  await Promise.all([read, control, subscribe, handleKeys, move].map(again));
  return changes;
}
