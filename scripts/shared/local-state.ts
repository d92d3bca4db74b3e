import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { z } from "@hono/zod-openapi";
import { ROOT } from "./checkout.ts";
import { makeSecret, SECRET_NAMES, type SecretName } from "./secrets.ts";

const LocalState = z.object({
  /** Where the last start serves or served, such as `http://localhost:8787`. */
  base: z.string(),
  workspaceId: z.string(),
  apiKey: z.string().nullable(),
  sampleLoaded: z.boolean(),
  webhook: z.object({ id: z.string(), secret: z.string() }).nullable(),
  /** The portal link that the start created; null if it serves no portal. */
  portal: z.string().nullable(),
});

/** The state that a start stores for the next one: secrets that are shown only once, and its progress. */
export type LocalState = z.infer<typeof LocalState>;

const STATE_FILE = join(ROOT, ".wrangler/local.json");
const SECRETS_FILE = join(ROOT, ".dev.vars");

/** The state that the last start left. @throws Error if it is unreadable. */
export function readState(): LocalState | null {
  if (!existsSync(STATE_FILE)) return null;
  try {
    return LocalState.parse(JSON.parse(readFileSync(STATE_FILE, "utf8")));
  } catch {
    throw new Error(`${STATE_FILE} is unreadable: delete it to start over.`);
  }
}

/** Stores the state for the next start, readable only by this user. */
export function writeState(state: LocalState): void {
  mkdirSync(dirname(STATE_FILE), { recursive: true });
  writeFileSync(STATE_FILE, `${JSON.stringify(state, null, 2)}\n`, { mode: 0o600 });
}

/** Forgets the sample workspace with its API key and webhook: `npm start` then creates new ones. */
export function deleteState(): void {
  rmSync(STATE_FILE, { force: true });
}

/** Creates the Worker's local secrets that are missing. @returns their names. */
export function makeSecrets(): SecretName[] {
  const text = existsSync(SECRETS_FILE) ? readFileSync(SECRETS_FILE, "utf8") : "";
  const isSet = (name: string) => new RegExp(`^\\s*(export\\s+)?${name}\\s*=`, "m").test(text);
  const missing = SECRET_NAMES.filter((name) => !isSet(name));
  if (missing.length === 0) return [];
  const separator = text === "" || text.endsWith("\n") ? "" : "\n";
  const lines = missing.map((name) => `${name}="${makeSecret("local")}"\n`);
  writeFileSync(SECRETS_FILE, text + separator + lines.join(""), { mode: 0o600 });
  return missing;
}
