import { randomBytes } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { z } from "zod";
import { ROOT } from "./checkout.ts";

const LocalState = z.object({
  workspaceId: z.string(),
  apiKey: z.string().nullable(),
  sampleLoaded: z.boolean(),
  webhook: z.object({ id: z.string(), secret: z.string() }).nullable(),
});

/** What a start leaves for the next one: what is shown once only, and how far it came. */
export type LocalState = z.infer<typeof LocalState>;

const STATE_FILE = join(ROOT, ".wrangler/local.json");
const SECRETS_FILE = join(ROOT, ".dev.vars");
const SECRET_NAME = "WEBHOOK_ENCRYPTION_KEYS";

/** The state that the last start left. @throws Error when it cannot be read. */
export function readState(): LocalState | null {
  if (!existsSync(STATE_FILE)) return null;
  try {
    return LocalState.parse(JSON.parse(readFileSync(STATE_FILE, "utf8")));
  } catch {
    throw new Error(`${STATE_FILE} cannot be read: delete it to start over.`);
  }
}

/** Keeps the state for the next start, for the eyes of this user only. */
export function writeState(state: LocalState): void {
  mkdirSync(dirname(STATE_FILE), { recursive: true });
  writeFileSync(STATE_FILE, `${JSON.stringify(state, null, 2)}\n`, { mode: 0o600 });
}

/** Makes the Worker's local secret, if there is none. @returns whether it was made. */
export function makeSecret(): boolean {
  const text = existsSync(SECRETS_FILE) ? readFileSync(SECRETS_FILE, "utf8") : "";
  if (new RegExp(`^\\s*(export\\s+)?${SECRET_NAME}\\s*=`, "m").test(text)) return false;
  const separator = text === "" || text.endsWith("\n") ? "" : "\n";
  const secret = `${SECRET_NAME}="local:${randomBytes(32).toString("base64")}"\n`;
  writeFileSync(SECRETS_FILE, text + separator + secret, { mode: 0o600 });
  return true;
}
