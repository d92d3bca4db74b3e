import { buildWorker } from "../../../scripts/shared/runtime.ts";

/** Builds the Worker once for all tests of this process that start it. */
export default function setup(): void {
  if (process.env.WORKER_IS_BUILT) return;
  buildWorker();
  process.env.WORKER_IS_BUILT = "true";
}
