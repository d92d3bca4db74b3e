import type { PlatformMethod } from "./platform.ts";

/*
 * Parses with schemas that are imported on first use: building them takes longer than the rest of
 * startup, and most isolates only serve requests and deliveries.
 */
const schemas = () => import("./platform.ts");

/** `parseInput` of `platform.ts`. */
export async function parseInput<M extends PlatformMethod>(method: M, input: unknown) {
  return (await schemas()).parseInput(method, input);
}

/** `parseRecordMessage` of `platform.ts`. */
export async function parseRecordMessage(content: unknown) {
  return (await schemas()).parseRecordMessage(content);
}
