import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { expect, test } from "vitest";
import { ROOT } from "../../../scripts/shared/checkout.ts";
import { startProgram } from "../../node/support/process.ts";

const LINES = 2_000;
const CALLS = 10;

/** A Worker whose Platform prints 400 KB in each call. */
const NOISY = `import { DurableObject, WorkerEntrypoint } from "cloudflare:workers";
export class KeyGate extends DurableObject {}
export class AddressGate extends DurableObject {}
export class Platform extends WorkerEntrypoint {
  health() {
    for (let i = 0; i < ${LINES}; i++) console.log("x".repeat(200));
  }
}
export default { fetch: () => new Response() };`;

/** Each call blocks the thread until the runtime takes it, while the runtime prints what calls before caused. */
const calling = (bundle: string) => `
  import { startRuntime } from "../../scripts/shared/runtime.ts";
  let lines = 0;
  for (const onLog of [undefined, () => { lines++; }]) {
    const runtime = await startRuntime({ bundle: ${JSON.stringify(bundle)}, onLog });
    await Promise.all(Array.from({ length: ${CALLS} }, () => runtime.env.PLATFORM.health({})));
    await runtime.stop();
    console.log(lines);
  }`;

test("A Worker that prints much, which is dropped or passed on, does not block its caller", async () => {
  // A process of its own, because a blocked thread cannot fail a test.
  const folder = join(ROOT, "dist/noisy");
  mkdirSync(folder, { recursive: true });
  const bundle = join(folder, "index.js");
  writeFileSync(bundle, NOISY);
  const script = join(folder, "calls.ts");
  writeFileSync(script, calling(bundle));
  const { child, ended } = startProgram([process.execPath, script]);
  const end = await Promise.race([ended, sleep(90_000, null, { ref: false })]);
  if (!end) child.kill("SIGKILL");
  expect(end).toMatchObject({ code: 0, stdout: `0\n${LINES * CALLS}\n` });
});
