import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { ROOT } from "../../../scripts/shared/checkout.ts";

/** Builds the files of the docs page, as a build of the Worker does: once for all projects. */
export default function setup(): void {
  if (process.env.ASSETS_ARE_BUILT) return;
  execFileSync(process.execPath, [join(ROOT, "scripts/assets.ts")]);
  // Each later build of a Worker, by whatever program, leaves them as they are.
  process.env.ASSETS_ARE_BUILT = "true";
}
