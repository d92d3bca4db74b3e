import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { parseKeyRing } from "../../src/encryption/key-ring.ts";
import { writePrivateFile } from "../shared/private-file.ts";
import { makeSecret, type SecretName, type Secrets } from "../shared/secrets.ts";
import { print } from "../shared/terminal.ts";

/** The text of a copy: a line for each secret. */
const COPY = /^(?:[A-Z_]+="[^"\n]+"\n)*$/;

/**
 * Completes the secrets that a Worker lacks, and keeps a copy that only this user can read. A deployment that failed
 * has left a copy: its secrets are used, so that there is never one that decrypts nothing. New keys have the date for
 * an id.
 *
 * @param worker the Worker that they are for.
 * @param file the copy; by default one in the home of the user.
 * @throws Error if the file is something else, or cannot be written.
 */
export function completeSecrets(
  worker: string,
  names: SecretName[],
  file: string | undefined,
  env: NodeJS.ProcessEnv,
): Secrets {
  if (names.length === 0) return {};
  const id = `k${new Date().toISOString().slice(0, 10).replaceAll("-", "")}`;
  const copy = file ?? join(env.HOME ?? homedir(), `${worker}.secrets.txt`);
  const copied = readCopy(copy);
  const secrets: Secrets = {};
  const found: SecretName[] = [];
  const generated: SecretName[] = [];
  for (const name of names) {
    const secret = copied[name];
    (secret ? found : generated).push(name);
    secrets[name] = secret ?? makeSecret(id);
  }
  const lines = generated.map((name) => `${name}="${secrets[name]}"\n`);
  try {
    writePrivateFile(copy, lines.join(""), "a");
  } catch (error) {
    throw unusable(copy, `cannot be written (${(error as NodeJS.ErrnoException).code})`);
  }
  if (found.length > 0) print(`${found.join(" and ")}: found in ${copy}.`);
  if (generated.length > 0) print(`${generated.join(" and ")}: generated, and copied to ${copy}.`);
  print(
    `Cloudflare never shows secrets: keep this file safe.${
      names.includes("ENCRYPTION_KEYS")
        ? " Without the encryption key nobody can read the leads."
        : ""
    }`,
  );
  return secrets;
}

/** The secrets in a copy, by name; none if there is no such file. @throws Error if it is something else. */
function readCopy(copy: string): Record<string, string> {
  if (!existsSync(copy)) return {};
  const text = readFileSync(copy, "utf8");
  if (!COPY.test(text)) throw unusable(copy, "exists, and is not a copy of secrets");
  const secrets: Record<string, string> = {};
  for (const [, name = "", secret = ""] of text.matchAll(/^(.+)="(.+)"$/gm)) {
    try {
      parseKeyRing(name, secret);
    } catch (error) {
      throw unusable(copy, `cannot be used (${(error as Error).message})`);
    }
    secrets[name] = secret;
  }
  return secrets;
}

function unusable(copy: string, reason: string): Error {
  return new Error(
    `${copy} ${reason}: choose another file for the secrets, --secrets-copy FILE. Nothing was deployed.`,
  );
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
export function writeSecretsFile(folder: PrivateFolder, secrets: Record<string, string>): string {
  const file = join(folder.path, "secrets.json");
  writePrivateFile(file, JSON.stringify(secrets));
  return file;
}
