import { execFileSync } from "node:child_process";
import { join } from "node:path";
import { ROOT } from "../../../scripts/shared/checkout.ts";

/** Builds the files of the docs page, as a build of the Worker does. */
export default function setup(): void {
  execFileSync(process.execPath, [join(ROOT, "scripts/assets.ts")]);
}
