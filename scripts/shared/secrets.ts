import { randomBytes } from "node:crypto";

/** The secrets of the Worker, each a key ring. */
export const SECRET_NAMES = [
  "ENCRYPTION_KEYS",
  "API_KEY_CHECKSUM_KEYS",
  "PORTAL_SIGNING_KEYS",
] as const;

const FORMER_NAME = "WEBHOOK_ENCRYPTION_KEYS";

/** @throws Error that says what to rename if `isSet` knows a secret by a name that it no longer has. */
export function refuseFormerName(isSet: (name: string) => boolean): void {
  if (isSet(FORMER_NAME))
    throw new Error(`${FORMER_NAME} is now called ENCRYPTION_KEYS: rename it, and keep its value.`);
}

export type SecretName = (typeof SECRET_NAMES)[number];
/** Some of the secrets, by name. */
export type Secrets = Partial<Record<SecretName, string>>;

/** Creates a secret with one key. @param id the key's id. */
export function makeSecret(id: string): string {
  return `${id}:${randomBytes(32).toString("base64")}`;
}
