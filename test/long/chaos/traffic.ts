import { setTimeout as sleep } from "node:timers/promises";
import type { Victim } from "./victim.ts";

/** The databases that the workspace goes through. */
export const DATABASES = ["DB", "DB_2", "DB_3"];

export const AGENT = { reference: "agent", name: "Agent" };

/** Callers while events are recorded, and the failures they found. */
export interface Traffic {
  /** Pauses and activations that were answered. */
  changes: number;
  failures: string[];
}

interface Client {
  victim: Victim;
  workspaceId: string;
  apiKey: string;
}

/** Lets clients and an operator make sequential calls until `isOver`. */
export async function makeTraffic(
  client: Client,
  traffic: Traffic,
  automationId: string,
  isOver: () => boolean,
): Promise<void> {
  const again = async (round: () => Promise<void>) => {
    while (!isOver()) await round();
  };
  const ask = async (
    expected: number,
    ...[method, path, apiKey, options]: Parameters<Victim["request"]>
  ) => {
    const answer = await client.victim.request(method, path, apiKey, options);
    if (answer.status !== expected)
      traffic.failures.push(
        `${method} ${path} answered ${answer.status} instead of ${expected}: ${answer.text}`,
      );
    return answer;
  };
  const { victim, workspaceId, apiKey } = client;

  const read = async () => {
    for (const path of ["leads", "automations", "runs", "webhooks", `automations/${automationId}`])
      await ask(200, "GET", `/v1/${path}`, apiKey);
  };

  /** Each pause and each activation is one event, however often it had to be requested. */
  const control = async () => {
    for (const status of ["paused", "active"]) {
      await ask(200, "PATCH", `/v1/automations/${automationId}`, apiKey, { body: { status } });
      traffic.changes++;
    }
  };

  /** Creates and deletes subscriptions to events that never happen. */
  const subscribe = async () => {
    const body = { url: "http://127.0.0.1:9/", events: ["run.completed"] };
    await ask(201, "POST", "/v1/webhooks", apiKey, { body });
    const list = await ask(200, "GET", "/v1/webhooks?limit=100", apiKey);
    const { data } = JSON.parse(list.text) as { data: { id: string; events: string[] }[] };
    for (const { id, events } of data) {
      if (events[0] !== "run.completed") continue;
      // If the first answer was lost, the second says that it is gone.
      const options = { isTriedOnce: true };
      const { status } = await victim.request("DELETE", `/v1/webhooks/${id}`, apiKey, options);
      if (status !== 204 && status !== 404)
        traffic.failures.push(`DELETE /v1/webhooks/${id} answered ${status}`);
    }
  };

  /** A key's life: it is admitted until it is revoked, and not after. */
  const handleKeys = async () => {
    const key = await victim.platform<{ keyId: string; apiKey: string }>("createApiKey", {
      workspaceId,
    });
    const { keyId } = key;
    for (let quota = 1_000; quota < 1_010; quota++)
      await victim.platform("updateApiKey", { keyId, requestsPerWindow: quota });
    await ask(200, "GET", "/v1/automations", key.apiKey);
    await victim.platform("revokeApiKey", { keyId });
    await ask(401, "GET", "/v1/automations", key.apiKey);
  };

  /** Moves the workspace from database to database. */
  const move = async () => {
    for (const database of DATABASES.toReversed()) {
      await victim.platform("moveWorkspace", { workspaceId, database }).catch((error) => {
        // What it left there is deleted a minute later.
        if (!String(error).includes("is still being deleted")) throw error;
        return sleep(1_000);
      });
      if (isOver()) return;
    }
  };

  await Promise.all([read, control, subscribe, handleKeys, move].map(again));
}
