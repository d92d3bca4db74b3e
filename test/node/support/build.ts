import { buildWorker, readSettings } from "../../../scripts/shared/runtime.ts";
import buildAssets from "./assets.ts";

/** Builds the Worker, and then reads its settings, once for all tests of this process that start it. */
export default async function setup(): Promise<void> {
  if (!process.env.WORKER_IS_BUILT) {
    buildAssets();
    buildWorker();
    process.env.WORKER_IS_BUILT = "true";
  }
  process.env.WORKER_SETTINGS ??= JSON.stringify(await readSettings());
}
