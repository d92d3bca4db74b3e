import type { PlatformInput } from "../../src/platform/operations.ts";
import { parseRecordingInput, type RecordingMethod } from "../../src/records/recording/inputs.ts";
import { record as recordParsed } from "../../src/records/recording/record.ts";

/** Records a call as the Platform API would, at a time that the test chooses. */
export async function record<M extends RecordingMethod>(
  env: Env,
  method: M,
  input: PlatformInput<M>,
  now: number,
) {
  return recordParsed(env, method, parseRecordingInput(method, input), now);
}
