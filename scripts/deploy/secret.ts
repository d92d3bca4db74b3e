import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { homedir, tmpdir } from "node:os";
import { join } from "node:path";
import { makeSecret, type SecretName, type Secrets } from "../shared/secrets.ts";
import { print } from "../shared/terminal.ts";

/**
 * Generates secrets, whose keys have the date for an id, and writes a copy that only this user can read.
 *
 * @param worker the Worker that they are for.
 * @param file where to; by default a file in the user's home, or none in a pipeline, which has no other
 *   use for it.
 * @throws Error if there is such a file, or it cannot be written.
 */
export function generateSecrets(
  worker: string,
  names: SecretName[],
  file: string | undefined,
  env: NodeJS.ProcessEnv,
): Secrets {
  if (names.length === 0) return {};
  const id = `k${new Date().toISOString().slice(0, 10).replaceAll("-", "")}`;
  const secrets = Object.fromEntries(names.map((name) => [name, makeSecret(id)]));
  const home = env.CI ? undefined : join(env.HOME ?? homedir(), `${worker}.${id}.txt`);
  const copy = file ?? home;
  if (copy === undefined) return secrets;
  const lines = names.map((name) => `${name}="${secrets[name]}"\n`);
  try {
    writeFileSync(copy, lines.join(""), { mode: 0o600, flag: "wx" });
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException;
    const reason = code === "EEXIST" ? "already exists" : `cannot be written (${code})`;
    throw new Error(
      `${copy} ${reason}: choose a new file for the secrets, --secrets-copy FILE. Nothing was deployed.`,
    );
  }
  print(
    `${names.join(" and ")}: generated, and copied to ${copy}. Cloudflare never shows them: keep it safe.${
      names.includes("ENCRYPTION_KEYS")
        ? " Without the encryption key nobody can read the leads."
        : ""
    }`,
  );
  return secrets;
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
  writeFileSync(file, JSON.stringify(secrets), { mode: 0o600 });
  return file;
}
