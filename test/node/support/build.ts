import { buildWorker } from "../../../scripts/shared/runtime.ts";

/** Builds the Worker once for all tests that start it. */
export default function setup(): void {
  buildWorker();
}
