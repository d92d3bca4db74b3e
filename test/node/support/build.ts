import { buildWorker } from "../../../scripts/shared/runtime.ts";
import buildAssets from "./assets.ts";

/** Builds the Worker once for all tests of this process that start it. */
export default function setup(): void {
  if (process.env.WORKER_IS_BUILT) return;
  buildAssets();
  buildWorker();
  process.env.WORKER_IS_BUILT = "true";
}
