import { spawnSync } from "node:child_process";
import { basename } from "node:path";
import { z } from "@hono/zod-openapi";
import { ROOT } from "../shared/checkout.ts";
import type { ConfiguredDatabase } from "../shared/databases.ts";
import type { Wrangler } from "../shared/wrangler.ts";
import { expectRunsOn, parseJson } from "./databases.ts";

const Version = z.object({
  id: z.string(),
  annotations: z.object({ "workers/tag": z.string() }),
});

/** What follows the commit of a version whose checkout had changes that are not in it. */
const CHANGED = "-changed";

/** The commit that is checked out, as a version's tag; null without git. */
export function commitTag(): string | null {
  return git("describe", "--always", "--abbrev=12", "--exclude=*", `--dirty=${CHANGED}`);
}

/**
 * Rolls back to an earlier version of the Worker.
 *
 * @throws Error if the version cannot run on the databases as they have been migrated since.
 */
export async function rollBack(
  wrangler: Wrangler,
  versionId: string,
  databases: ConfiguredDatabase[],
): Promise<void> {
  const { stdout, complaint } = await wrangler.ask("versions", "view", versionId, "--json");
  const version = Version.safeParse(parseJson(stdout));
  if (!version.success)
    throw new Error(`The version ${versionId} is not one that npm run deploy made:\n${complaint}`);
  const commit = version.data.annotations["workers/tag"].replace(CHANGED, "");
  const files = git("ls-tree", "--name-only", commit, "migrations/");
  if (files === null)
    throw new Error(`This checkout lacks the commit ${commit} of that version: run git fetch.`);
  const known = files.split("\n").map((file) => basename(file));
  await expectRunsOn(wrangler, databases, known);
  const code = await wrangler.show(["rollback", versionId, "--yes", "--message", "Rolled back"]);
  if (code !== 0) throw new Error("Nothing was rolled back; the current version still serves.");
}

/** What git prints; null if it fails, or is not there. */
function git(...args: string[]): string | null {
  const { status, stdout } = spawnSync("git", args, { cwd: ROOT, encoding: "utf8" });
  return status === 0 ? stdout.trim() : null;
}
