import { existsSync, readFileSync } from "node:fs";
import { homedir } from "node:os";
import { join } from "node:path";
import { parseEnv } from "node:util";
import { parseKeyRing } from "../../src/encryption/key-ring.ts";
import { writePrivateFile } from "../shared/private-file.ts";
import { makeSecret, type SecretName, type Secrets } from "../shared/secrets.ts";
import { print } from "../shared/terminal.ts";

/**
 * Completes the secrets that a Worker lacks, and keeps a copy that only this user can read. A deployment that failed
 * has left a copy: its secrets are used, so that there is never one that decrypts nothing. New keys have the date for
 * an id.
 *
 * @param worker the Worker that they are for, and the name of the copy.
 * @throws Error if the copy has something else under their names, or cannot be written.
 */
export function completeSecrets(
  worker: string,
  names: SecretName[],
  env: NodeJS.ProcessEnv,
): Secrets {
  if (names.length === 0) return {};
  const id = `k${new Date().toISOString().slice(0, 10).replaceAll("-", "")}`;
  const copy = join(env.HOME ?? homedir(), `${worker}.secrets.txt`);
  const text = existsSync(copy) ? readFileSync(copy, "utf8") : "";
  const copied = parseEnv(text);
  const secrets: Secrets = {};
  const generated: string[] = [];
  for (const name of names) {
    const secret = copied[name] ?? makeSecret(id);
    parseKeyRing(`${copy}: ${name}`, secret);
    secrets[name] = secret;
    if (!copied[name]) generated.push(`${name}="${secret}"\n`);
  }
  // An editor may have left the last line without an end, and the next one would become a part of it.
  const end = text === "" || text.endsWith("\n") ? "" : "\n";
  writePrivateFile(copy, end + generated.join(""), "a");
  print(
    `${names.join(" and ")}: in ${copy}. Cloudflare never shows secrets: keep this file safe. Without the encryption key nobody can read the leads.`,
  );
  return secrets;
}
