/**
 * The runtime that `chaos.test.ts` kills. It says over IPC where it listens, carries out what it is
 * asked to, and runs the scheduled job often.
 */
import { startRuntime } from "../../../scripts/shared/runtime.ts";
import { SWEEP_GRACE_MS } from "../../../src/delivery/wake.ts";
import { DATABASES } from "./traffic.ts";

/** What it is asked for: a method of the Platform API, or rows of the workspace's database. */
export interface Call {
  id: number;
  method: string;
  input: unknown;
}

const SWEEP_EVERY_MS = 5_000;

await serve(process.argv[2] ?? "");

async function serve(persist: string): Promise<void> {
  const { url, env, scheduled } = await startRuntime({
    persist,
    databases: DATABASES.length,
    vars: { QUOTA_REQUESTS: 1_000_000, AUTH_FAILURES: 1_000_000 },
  });
  const platform = env.PLATFORM as unknown as Record<string, (input: unknown) => Promise<unknown>>;
  const bindings = env as unknown as Record<string, D1Database>;
  const read = async (sql: string) => {
    const found = await env.DB.prepare("SELECT database FROM workspaces").first<string>("database");
    return (await (bindings[found ?? "DB"] as D1Database).prepare(sql).all()).results;
  };
  // Miniflare's stubs may throw at once.
  const carryOut = async (method: string, input: unknown) =>
    method === "rows" ? read(String(input)) : platform[method]?.(input);
  process.on("message", ({ id, method, input }: Call) => {
    carryOut(method, input).then(
      (value) => process.send?.({ id, value }),
      (error) => process.send?.({ id, error: String(error) }),
    );
  });
  process.on("disconnect", () => process.exit(1));
  // A minute ahead, because the sweep leaves alone what is overdue by less.
  const sweep = async () => scheduled(Date.now() + SWEEP_GRACE_MS);
  setInterval(() => sweep().catch(() => {}), SWEEP_EVERY_MS);
  process.send?.({ url: url.href });
}
