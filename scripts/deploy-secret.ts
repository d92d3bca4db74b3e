import { randomBytes } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { type CANCEL_SYMBOL, isCancel, log, password, select, text } from "@clack/prompts";
import { readKeyRing } from "../src/delivery/seal.ts";

/** The one secret of the Worker. */
export const SECRET_NAME = "WEBHOOK_ENCRYPTION_KEYS";

/** @throws Error that says what is wrong with it, without a word of it. */
export function checkSecret(secret: string): void {
  readKeyRing(secret);
}

/** Asks for the secret, or makes one. @throws Error when the user gives up. */
export async function askForSecret(): Promise<string> {
  const choice = await answered(
    select({
      message: `${SECRET_NAME} encrypts the secrets of webhook subscriptions. The Worker has none yet.`,
      options: [
        { value: "generate", label: "Generate one" },
        { value: "enter", label: "Enter one", hint: "id:base64 of 32 bytes" },
      ],
    }),
  );
  if (choice === "enter")
    return answered(password({ message: SECRET_NAME, validate: (value) => faultOf(value ?? "") }));
  return generate();
}

async function generate(): Promise<string> {
  const id = `k${new Date().toISOString().slice(0, 10).replaceAll("-", "")}`;
  const secret = `${id}:${randomBytes(32).toString("base64")}`;
  log.info(
    "Cloudflare shows it to nobody, and to change it one day takes the old one: keep a copy.",
  );
  for (;;) {
    const file = await answered(
      text({
        message: "Where to? A new file, for your eyes only; empty for no copy.",
        initialValue: join(homedir(), `public-api.${id}.txt`),
      }),
    );
    // What was emptied comes back as nothing.
    const fault = file?.trim() ? keepCopy(file.trim(), secret) : null;
    if (fault === null) return secret;
    log.error(fault);
  }
}

/** Writes the secret to a file that is not there yet. @returns what went wrong, if anything. */
function keepCopy(file: string, secret: string): string | null {
  try {
    writeFileSync(file, `${SECRET_NAME}="${secret}"\n`, { mode: 0o600, flag: "wx" });
    return null;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    return code === "EEXIST" ? `${file} is there already.` : `${file} cannot be written: ${code}`;
  }
}

function faultOf(secret: string): string | undefined {
  try {
    checkSecret(secret);
    return undefined;
  } catch (error) {
    return (error as Error).message;
  }
}

/** What was answered. @throws Error when the question was cancelled. */
export async function answered<T>(question: Promise<T | typeof CANCEL_SYMBOL>): Promise<T> {
  const answer = await question;
  if (isCancel(answer)) throw new Error("Given up: nothing was deployed.");
  return answer;
}

/** A folder that only this user can read; it goes with this process, however that ends. */
export interface PrivateFolder extends Disposable {
  path: string;
}

/** Makes a folder outside the checkout. */
export function openPrivateFolder(): PrivateFolder {
  const path = mkdtempSync(join(tmpdir(), "deploy-"));
  const remove = () => rmSync(path, { recursive: true, force: true });
  process.on("exit", remove);
  // A signal ends wrangler, and its end ours: until then, none may end this process at once.
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"]) process.on(signal, () => {});
  return { path, [Symbol.dispose]: remove };
}

/** Writes the secret as wrangler reads it. @returns the file. */
export function writeSecretsFile(folder: PrivateFolder, secret: string): string {
  const file = join(folder.path, "secrets.json");
  writeFileSync(file, JSON.stringify({ [SECRET_NAME]: secret }), { mode: 0o600 });
  return file;
}
