import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { z } from "@hono/zod-openapi";
import { ROOT } from "../shared/checkout.ts";
import { writePrivateFile } from "../shared/private-file.ts";

const Kept = z.object({ id: z.string(), secret: z.string() });

/** The subscription of `npm run listen -- --keep`, with its secret, which the API shows only once. */
export type Kept = z.infer<typeof Kept>;

const FILE = join(ROOT, ".wrangler/listen.json");

/** The subscription that was kept last; null if there is none, or the file is unreadable. */
export function readKept(): Kept | null {
  try {
    return existsSync(FILE) ? Kept.parse(JSON.parse(readFileSync(FILE, "utf8"))) : null;
  } catch {
    return null;
  }
}

/** Keeps a subscription for the next listener; only this user can read it. */
export function writeKept({ id, secret }: Kept): void {
  writePrivateFile(FILE, `${JSON.stringify({ id, secret })}\n`);
}
