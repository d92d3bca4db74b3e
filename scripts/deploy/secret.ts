import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { type CANCEL_SYMBOL, isCancel, log, password, select, text } from "@clack/prompts";
import { parseKeyRing } from "../../src/encryption/key-ring.ts";
import { makeSecret, type SecretName, type Secrets } from "../shared/secrets.ts";

/** Generates secrets. The id of their keys is the date. */
export function makeSecrets(names: SecretName[]): Secrets {
  const id = `k${new Date().toISOString().slice(0, 10).replaceAll("-", "")}`;
  return Object.fromEntries(names.map((name) => [name, makeSecret(id)]));
}

/**
 * Asks for the encryption key if it is missing, or generates it; generates the other missing secrets.
 *
 * @throws Error if the user cancels.
 */
export async function askForSecrets(missing: SecretName[]): Promise<Secrets> {
  const entered = missing.includes("ENCRYPTION_KEYS") ? await askForEncryptionKey() : {};
  const toMake = missing.filter((name) => !(name in entered));
  const made = makeSecrets(toMake);
  if (toMake.length > 0) await offerCopy(made);
  return { ...entered, ...made };
}

/** The key that the user enters; nothing if one is to be generated. */
async function askForEncryptionKey(): Promise<Secrets> {
  const name = "ENCRYPTION_KEYS";
  const choice = await answered(
    select({
      message: `${name} encrypts the personal data of leads and the secrets of webhook subscriptions. The Worker has none yet.`,
      options: [
        { value: "generate", label: "Generate one" },
        { value: "enter", label: "Enter one", hint: "id:base64 of 32 bytes" },
      ],
    }),
  );
  if (choice === "generate") return {};
  const validate = (value: string | undefined) => faultOf(name, value ?? "");
  return { [name]: await answered(password({ message: name, validate })) };
}

async function offerCopy(made: Secrets): Promise<void> {
  const [id] = Object.values(made)[0]?.split(":") ?? [];
  const names = Object.keys(made).join(" and ");
  const loss =
    "ENCRYPTION_KEYS" in made ? ", and without the encryption key nobody can read the leads" : "";
  log.info(
    `${names}: Cloudflare never shows them. Keep a copy: you need the old one to rotate one${loss}.`,
  );
  for (;;) {
    const file = await answered(
      text({
        message: "Where to? A new file that only you can read; leave empty for no copy.",
        initialValue: join(homedir(), `public-api.${id}.txt`),
      }),
    );
    // An empty answer comes back as undefined.
    const fault = file?.trim() ? keepCopy(file.trim(), made) : null;
    if (fault === null) return;
    log.error(fault);
  }
}

/** Writes secrets to a new file. @returns why that failed; null if it did not. */
function keepCopy(file: string, secrets: Secrets): string | null {
  const lines = Object.entries(secrets).map(([name, secret]) => `${name}="${secret}"\n`);
  try {
    writeFileSync(file, lines.join(""), { mode: 0o600, flag: "wx" });
    return null;
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    return code === "EEXIST" ? `${file} already exists.` : `${file} cannot be written: ${code}`;
  }
}

function faultOf(name: SecretName, secret: string): string | undefined {
  try {
    parseKeyRing(name, secret);
    return undefined;
  } catch (error) {
    return (error as Error).message;
  }
}

/** Awaits the answer to a prompt. @throws Error if the user cancels. */
export async function answered<T>(question: Promise<T | typeof CANCEL_SYMBOL>): Promise<T> {
  const answer = await question;
  if (isCancel(answer)) throw new Error("Cancelled: nothing was deployed.");
  return answer;
}

const SIGNALS = ["SIGINT", "SIGTERM", "SIGHUP"];

/** A folder that only this user can read; it is deleted however this process ends. */
export interface PrivateFolder extends Disposable {
  path: string;
}

/** Creates a private folder outside the checkout. */
export function openPrivateFolder(): PrivateFolder {
  const path = mkdtempSync(join(tmpdir(), "deploy-"));
  const remove = () => rmSync(path, { recursive: true, force: true });
  const stay = () => {};
  process.on("exit", remove);
  // A signal ends wrangler first, and then this process: it must not end immediately.
  for (const signal of SIGNALS) process.on(signal, stay);
  return {
    path,
    [Symbol.dispose]() {
      remove();
      process.off("exit", remove);
      for (const signal of SIGNALS) process.off(signal, stay);
    },
  };
}

/** Writes secrets in the format that wrangler reads. @returns the file. */
export function writeSecretsFile(folder: PrivateFolder, secrets: Secrets): string {
  const file = join(folder.path, "secrets.json");
  writeFileSync(file, JSON.stringify(secrets), { mode: 0o600 });
  return file;
}
