import { existsSync, mkdirSync, readFileSync, rmSync } from "node:fs";
import { dirname, join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { z } from "@hono/zod-openapi";
import { ROOT } from "./checkout.ts";
import { writePrivateFile } from "./private-file.ts";
import { makeSecret, SECRET_NAMES, type SecretName } from "./secrets.ts";

const LocalServer = z.object({
  /** Its base URL, such as `http://localhost:8787`. */
  base: z.string(),
  /** Its key for `POST /platform/METHOD`, in the form of `PLATFORM_KEYS`. Each start creates another one. */
  platformKey: z.string(),
});

/** The server that the last `npm start` runs or ran, as other commands find it. */
export type LocalServer = z.infer<typeof LocalServer>;

const LocalState = z.object({
  workspaceId: z.string(),
  apiKey: z.string().nullable(),
  sampleLoaded: z.boolean(),
  webhook: z.object({ id: z.string(), secret: z.string() }).nullable(),
});

/** The state that a start stores for the next one: secrets that are shown only once, and its progress. */
export type LocalState = z.infer<typeof LocalState>;

/** Tests have servers of their own. */
const serverFile = () => process.env.LOCAL_SERVER_FILE ?? join(ROOT, ".wrangler/server.json");
const STATE_FILE = join(ROOT, ".wrangler/local.json");
const SECRETS_FILE = join(ROOT, ".dev.vars");

/** The server of the last start; null if there was none. @throws Error if the file is unreadable. */
export function readServer(): LocalServer | null {
  return readFile(serverFile(), LocalServer);
}

/** Stores where this start serves. */
export function writeServer(server: LocalServer, file = serverFile()): void {
  writeFile(file, server);
}

/** The state that the last start left. @throws Error if the file is unreadable. */
export function readState(): LocalState | null {
  return readFile(STATE_FILE, LocalState);
}

/** Stores the state for the next start. */
export function writeState(state: LocalState): void {
  writeFile(STATE_FILE, state);
}

/** Forgets the sample workspace with its API key and webhook: `npm start` then creates new ones. */
export function deleteState(): void {
  rmSync(STATE_FILE, { force: true });
}

/**
 * Locks the local data of this checkout for one `npm start`: two servers would write to the same databases. The operating
 * system releases the lock of SQLite when the process ends, however it ends.
 *
 * @throws Error in one sentence if another start holds the lock.
 */
export function lockData(): Disposable {
  const lock = new DatabaseSync(join(ROOT, ".wrangler/start.lock"), { timeout: 0 });
  try {
    lock.exec("BEGIN EXCLUSIVE");
  } catch {
    throw new Error(
      "npm start already runs in this checkout: stop it, or start a second server in a copy of the checkout.",
    );
  }
  return { [Symbol.dispose]: () => lock.close() };
}

/** Creates the Worker's local secrets that are missing. @returns their names. */
export function makeSecrets(): SecretName[] {
  const text = existsSync(SECRETS_FILE) ? readFileSync(SECRETS_FILE, "utf8") : "";
  const isSet = (name: string) => new RegExp(`^\\s*(export\\s+)?${name}\\s*=`, "m").test(text);
  const missing = SECRET_NAMES.filter((name) => !isSet(name));
  if (missing.length === 0) return [];
  const separator = text === "" || text.endsWith("\n") ? "" : "\n";
  const lines = missing.map((name) => `${name}="${makeSecret("local")}"\n`);
  writePrivateFile(SECRETS_FILE, text + separator + lines.join(""));
  return missing;
}

function readFile<Content extends z.ZodType>(
  file: string,
  content: Content,
): z.output<Content> | null {
  if (!existsSync(file)) return null;
  try {
    return content.parse(JSON.parse(readFileSync(file, "utf8")));
  } catch {
    throw new Error(`${file} is unreadable: delete it to start over.`);
  }
}

function writeFile(file: string, content: object): void {
  mkdirSync(dirname(file), { recursive: true });
  writePrivateFile(file, `${JSON.stringify(content, null, 2)}\n`);
}
