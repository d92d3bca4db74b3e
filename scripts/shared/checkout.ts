import { accessSync, constants, mkdirSync } from "node:fs";
import { join } from "node:path";

/** The root of the checkout. */
export const ROOT = join(import.meta.dirname, "../..");

/** Keeps wrangler inside the checkout, silent about itself and off the network. */
export const WRANGLER_ENV = {
  WRANGLER_REGISTRY_PATH: process.env.WRANGLER_REGISTRY_PATH ?? join(ROOT, ".wrangler/registry"),
  WRANGLER_LOG_PATH: join(ROOT, ".wrangler/logs"),
  WRANGLER_SEND_METRICS: "false",
  WRANGLER_HIDE_BANNER: "true",
  CLOUDFLARE_CF_FETCH_ENABLED: "false",
} as const;

/** Creates a folder unless it exists. @throws Error in one sentence if it is not writable. */
export function makeWritable(folder: string): void {
  try {
    mkdirSync(folder, { recursive: true });
    accessSync(folder, constants.W_OK);
  } catch (error) {
    throw new Error(`${folder} cannot be written to (${(error as NodeJS.ErrnoException).code}).`);
  }
}
