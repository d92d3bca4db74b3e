import fc from "fast-check";
import { expect, test } from "vitest";
import { startRuntime } from "../../../scripts/shared/runtime.ts";
import { mintApiKey } from "../../../src/quota/api-key.ts";
import { opened } from "../../node/support/opened.ts";
import { startReceiver } from "../../node/support/receiver.ts";
import { clientSteps } from "./client-steps.ts";
import { readContract } from "./document.ts";
import { Model, newKey } from "./model.ts";
import { PLATFORM_STEPS } from "./platform-steps.ts";
import { replayable } from "./replay.ts";
import { openService } from "./service.ts";
import { workspaceOf } from "./step.ts";

const SEQUENCES = Number(process.env.FUZZ_SEQUENCES ?? 25);
/** The `replayPath` of a counterexample: its `FUZZ_PATH` is useless without it. */
const REPLAY = process.env.FUZZ_REPLAY;
/** Long enough for a busy machine. */
const DRAW_MS = 120_000 + SEQUENCES * 5_000;
const REQUESTS = 1_000;
const FAILURES = 2;
/** How often all sequences are drawn at most, until chance has reached what it must. */
const DRAWS = 4;
/** Longer than any test: no window ends in between. */
const WINDOW_SECONDS = 86_400;

const receiver = await opened(startReceiver());
const runtime = await opened(
  startRuntime({
    vars: {
      QUOTA_WINDOW_SECONDS: WINDOW_SECONDS,
      AUTH_FAILURES: FAILURES,
      AUTH_FAILURE_WINDOW_SECONDS: WINDOW_SECONDS,
    },
  }),
);

/** What sequences must reach, because otherwise they prove nothing. */
const REACHED = [
  ...["200", "201", "204"],
  ...["invalid_request", "invalid_api_key", "workspace_access_denied", "rate_limited"],
  ...["automation_not_found", "webhook_not_found", "automation_not_controllable"],
  ...["subscription_limit_reached", "a walk over pages"],
];

/**
 * Two workspaces, each with a key that lasts; a key that nobody created, and one that is soon used
 * up.
 */
async function openModel(): Promise<Model> {
  const { PLATFORM } = runtime.env;
  const opened = [
    await PLATFORM.createWorkspace({ name: "Agence" }),
    await PLATFORM.createWorkspace({ name: "Garage" }),
  ];
  const ids = opened.map(({ workspaceId }) => String(workspaceId));
  const model = new Model(ids, FAILURES);
  for (const [i, requests] of [
    [0, REQUESTS],
    [1, REQUESTS],
    [0, 0],
    [1, 2],
  ] as const) {
    const workspace = workspaceOf(model, i);
    const { workspaceId } = workspace;
    const { keyId, apiKey } =
      requests === 0
        ? { keyId: "key_unknown", apiKey: await mintApiKey(runtime.env.API_KEY_CHECKSUM_KEYS) }
        : await PLATFORM.createApiKey({ workspaceId, requestsPerWindow: requests });
    const key = newKey(workspace, { keyId: String(keyId), apiKey: String(apiKey) }, requests);
    model.keys.push({ ...key, revoked: requests === 0 });
  }
  return model;
}

test(`${SEQUENCES} sequences of calls are answered as a model of the service predicts`, {
  timeout: DRAWS * DRAW_MS + 30_000,
}, async () => {
  const contract = await readContract(runtime.url);
  const reached: Record<string, number> = {};
  let sequences = 0;
  const begin = async () => {
    sequences++;
    const address = `198.18.${sequences >> 8}.${sequences & 255}`;
    return {
      model: await openModel(),
      real: openService(runtime, contract, address, reached),
    };
  };
  const steps = [...PLATFORM_STEPS, ...clientSteps(receiver.url)];
  const sequence = fc.commands(steps, {
    maxCommands: 80,
    size: "max",
    ...(REPLAY ? { replayPath: REPLAY } : {}),
  });
  const missing = () => REACHED.filter((what) => !reached[what]);
  // What is replayed, or cut short, need not reach everything.
  const whole = SEQUENCES >= 25 && !process.env.FUZZ_SEED;
  for (let draw = 0; draw < (whole ? DRAWS : 1) && missing().length > 0; draw++)
    await fc.assert(
      fc.asyncProperty(sequence, (commands) => fc.asyncModelRun(begin, commands)),
      // A failure that takes long to shrink is reported as small as it got.
      { ...replayable(SEQUENCES), interruptAfterTimeLimit: DRAW_MS, markInterruptAsFailure: true },
    );
  console.log(`sequences: ${JSON.stringify(reached)}`);
  if (whole) expect(missing()).toEqual([]);
});
