import type { PlatformInput, RecordingMethod } from "../../src/contract/platform.ts";
import { parseInput } from "../../src/contract/platform.ts";
import { record as recordParsed } from "../../src/recording/record.ts";

/** Records a call as the Platform door would, at a time that the test chooses. */
export async function record<M extends RecordingMethod>(
  env: Env,
  method: M,
  input: PlatformInput<M>,
  now: number,
) {
  return recordParsed(env, method, parseInput(method, input), now);
}
