import { fromBase64, toBase64, toHex } from "../contract/bytes.ts";

const SECRET_PREFIX = "whsec_";
const SECRET_BYTES = 32;

/** A new signing secret: `whsec_` and the base64 of 32 random bytes. */
export function mintSecret(): string {
  return SECRET_PREFIX + toBase64(crypto.getRandomValues(new Uint8Array(SECRET_BYTES)));
}

/**
 * The signature headers of one attempt, in both families: the contract's `X-Service-Signature`
 * (keyed by the secret's text) and those of Standard Webhooks (keyed by the bytes behind its prefix).
 *
 * @param body the exact text that is posted.
 * @param now Unix milliseconds; receivers refuse what is more than 5 minutes away.
 */
export async function signatureHeaders(
  secret: string,
  eventId: string,
  body: string,
  now: number,
): Promise<Record<string, string>> {
  const timestamp = Math.floor(now / 1000);
  const [service, standard] = await Promise.all([
    hmac(new Uint8Array(new TextEncoder().encode(secret)), `${timestamp}.${body}`),
    hmac(fromBase64(secret.slice(SECRET_PREFIX.length)), `${eventId}.${timestamp}.${body}`),
  ]);
  return {
    "X-Service-Signature": `t=${timestamp},v1=${toHex(service)}`,
    "webhook-id": eventId,
    "webhook-timestamp": String(timestamp),
    "webhook-signature": `v1,${toBase64(standard)}`,
  };
}

async function hmac(secret: Uint8Array<ArrayBuffer>, text: string): Promise<Uint8Array> {
  const algorithm = { name: "HMAC", hash: "SHA-256" };
  const key = await crypto.subtle.importKey("raw", secret, algorithm, false, ["sign"]);
  return new Uint8Array(await crypto.subtle.sign("HMAC", key, new TextEncoder().encode(text)));
}
