import { runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { KeyGate } from "../../src/rate-limit/key-gate.ts";
import { hashApiKey } from "../../src/rate-limit/key-text.ts";
import { openWorkspace } from "./api.ts";
import { jumpTo } from "./deliveries.ts";
import { interposed } from "./interposed.ts";
import { slowDatabase } from "./slow-database.ts";

/** A key of a new workspace, and its gate. */
export async function openKey(requestsPerWindow?: number) {
  const workspace = await openWorkspace(
    requestsPerWindow === undefined ? {} : { requestsPerWindow },
  );
  const keyHash = await hashApiKey(workspace.apiKey);
  const gate = () => env.KEY_GATE.getByName(keyHash);
  return {
    ...workspace,
    keyHash,
    gate,
    /** Lets the gate decide about a request, at a time if one is given. */
    admit: (at?: number) => {
      if (at !== undefined) jumpTo(at);
      return gate().admit(keyHash);
    },
  };
}

/**
 * Lets a cold gate read the status of a key, and does something during the read. Returns the verdict, and those at the
 * times that `later` returns.
 */
export async function race(
  { keyHash, gate }: Awaited<ReturnType<typeof openKey>>,
  meanwhile: (gate: KeyGate) => Promise<unknown>,
  later: () => number[] = () => [Date.now()],
): Promise<string[]> {
  return runInDurableObject(gate(), async (_, state) => {
    const { db, reading, release } = slowDatabase();
    const cold = new KeyGate(state, { ...env, DB: db });
    const admission = cold.admit(keyHash);
    await reading;
    await meanwhile(cold);
    release();
    const verdicts = [(await admission).verdict];
    for (const at of later()) {
      jumpTo(at);
      verdicts.push((await cold.admit(keyHash)).verdict);
    }
    return verdicts;
  });
}

/** Asks a gate to admit its key; what it then asks DB_2 is answered by `act`. */
export function admitBeside(
  gate: DurableObjectStub<KeyGate>,
  keyHash: string,
  act: (go: () => Promise<unknown>) => Promise<unknown>,
) {
  return runInDurableObject(gate, async (object: KeyGate) => {
    const held = object as unknown as { env: { DB_2: D1Database } };
    const own = held.env;
    held.env = { ...own, DB_2: interposed(own.DB_2, ({ go }) => act(go)) };
    const admission = await object.admit(keyHash);
    held.env = own;
    return admission;
  });
}

/** Keeps what an object writes with `put`, in order. */
export function observeWrites(storage: DurableObjectStorage) {
  const writes: { name: unknown; value: unknown; at: number }[] = [];
  const put = storage.put.bind(storage) as (...args: unknown[]) => Promise<void>;
  storage.put = ((name: unknown, value: unknown, ...options: unknown[]) => {
    writes.push({ name, value: structuredClone(value), at: Date.now() });
    return put(name, value, ...options);
  }) as typeof storage.put;
  return writes;
}
