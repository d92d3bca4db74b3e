import fc from "fast-check";
import { afterAll, beforeAll, expect, test } from "vitest";
import { type Runtime, startRuntime } from "../../scripts/runtime.ts";
import { type Receiver, startReceiver } from "../support/receiver.ts";
import { clientSteps } from "./client-steps.ts";
import { Contract } from "./document.ts";
import { Model } from "./model.ts";
import { PLATFORM_STEPS } from "./platform-steps.ts";
import { replayable } from "./replay.ts";
import { Service } from "./service.ts";

const SEQUENCES = Number(process.env.FUZZ_SEQUENCES ?? 25);
const LIMIT_MS = 60_000 + SEQUENCES * 1_000;
const RULES = { requests: 1_000, failures: 2 };
/** Longer than any run: no window ends on the way. */
const WINDOW_SECONDS = 86_400;

let runtime: Runtime;
let receiver: Receiver;

beforeAll(async () => {
  receiver = await startReceiver();
  runtime = await startRuntime({
    vars: {
      QUOTA_REQUESTS: RULES.requests,
      QUOTA_WINDOW_SECONDS: WINDOW_SECONDS,
      AUTH_FAILURES: RULES.failures,
      AUTH_FAILURE_WINDOW_SECONDS: WINDOW_SECONDS,
    },
  });
});

afterAll(async () => {
  await runtime.stop();
  await receiver.close();
});

/** What sequences must come by, or they prove nothing. */
const REACHED = [
  ...["200", "201", "204"],
  ...["invalid_request", "invalid_api_key", "workspace_access_denied", "rate_limited"],
  ...["automation_not_found", "webhook_not_found", "automation_not_controllable"],
  ...["subscription_limit_reached", "a walk over pages"],
];

async function openWorkspace() {
  const { PLATFORM } = runtime.env;
  const { workspaceId } = await PLATFORM.createWorkspace({ name: "Agence" });
  const { keyId, apiKey } = await PLATFORM.createApiKey({ workspaceId });
  return { workspaceId: String(workspaceId), keyId: String(keyId), apiKey: String(apiKey) };
}

test(`${SEQUENCES} sequences of calls are answered as a model of the service says`, {
  timeout: LIMIT_MS + 30_000,
}, async () => {
  const contract = await Contract.read(runtime.url);
  const reached: Record<string, number> = {};
  let sequences = 0;
  const begin = async () => {
    const opened = await Promise.all([openWorkspace(), openWorkspace()]);
    sequences++;
    const address = `198.18.${sequences >> 8}.${sequences & 255}`;
    return {
      model: new Model(opened, RULES),
      real: new Service(runtime, contract, address, reached),
    };
  };
  const steps = [...PLATFORM_STEPS, ...clientSteps(receiver.url)];
  const sequence = fc.commands(steps, { maxCommands: 80, size: "max" });
  await fc.assert(
    fc.asyncProperty(sequence, (commands) => fc.asyncModelRun(begin, commands)),
    // A failure that takes long to shrink is told as small as it got.
    { ...replayable(SEQUENCES), interruptAfterTimeLimit: LIMIT_MS, markInterruptAsFailure: true },
  );
  console.log(`sequences: ${JSON.stringify(reached)}`);
  // A failure that is replayed is no such proof.
  if (sequences < 25) return;
  for (const what of REACHED) expect(reached[what], what).toBeGreaterThan(0);
});
