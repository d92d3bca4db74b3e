import type { PlatformMethod } from "./platform.ts";

/*
 * Reads input by schemas that are loaded with the first: they take longer to make than all the rest of
 * a start, and most isolates only ever serve requests and deliveries.
 */
const schemas = () => import("./platform.ts");

/** As `readInput` of `platform.ts`. */
export async function readInput<M extends PlatformMethod>(method: M, input: unknown) {
  return (await schemas()).readInput(method, input);
}

/** As `readRecordMessage` of `platform.ts`. */
export async function readRecordMessage(content: unknown) {
  return (await schemas()).readRecordMessage(content);
}
