/** The runtime that `chaos.ts` kills: answers its calls over IPC, and lets the cron door run often. */
import { startRuntime } from "../shared/runtime.ts";

const SWEEP_EVERY_MS = 5_000;

const [persist] = process.argv.slice(2);
if (!persist || !process.send) throw new Error("started by chaos.ts only");
const runtime = await startRuntime({ persist, vars: { QUOTA_REQUESTS: 1_000_000 } });
const platform = runtime.env.PLATFORM as unknown as Record<
  string,
  (input: unknown) => Promise<unknown>
>;

async function answer(target: string, input: unknown): Promise<unknown> {
  if (target === "query") return (await runtime.env.DB.prepare(String(input)).all()).results;
  return platform[target]?.(input);
}

process.on("disconnect", () => process.exit(1));
process.on(
  "message",
  async ({ call, target, input }: { call: number; target: string; input: unknown }) => {
    try {
      // What comes over RPC is a proxy: as JSON it can travel on.
      const value = JSON.parse(JSON.stringify((await answer(target, input)) ?? null));
      process.send?.({ call, value });
    } catch (error) {
      process.send?.({ call, error: String(error) });
    }
  },
);
setInterval(() => runtime.scheduled().catch(() => {}), SWEEP_EVERY_MS);
process.send({ url: runtime.url.href });
