import { randomBytes } from "node:crypto";

/** The secrets that the Worker needs, each a key ring. */
export const SECRET_NAMES = [
  "ENCRYPTION_KEYS",
  "API_KEY_CHECKSUM_KEYS",
  "PORTAL_SIGNING_KEYS",
] as const;

export type SecretName = (typeof SECRET_NAMES)[number];
/** Secrets by name: some of those above, and others that a deployment may have. */
export type Secrets = Partial<Record<SecretName | "PLATFORM_KEYS", string>>;

/** Creates a secret with one key. @param id the key's id. */
export function makeSecret(id: string): string {
  return `${id}:${randomBytes(32).toString("base64")}`;
}
