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
export type Signer = (
  eventId: string,
  body: string,
  now: number,
) => Promise<Record<string, string>>;

/** A signer that is used for many deliveries: its keys are imported once. */
export async function createSigner(secret: string): Promise<Signer> {
  const [serviceKey, standardKey] = await Promise.all([
    importKey(new Uint8Array(encoder.encode(secret))),
    importKey(fromBase64(secret.slice(SECRET_PREFIX.length))),
  ]);
  return async (eventId, body, now) => {
    const timestamp = Math.floor(now / 1000);
    const prefix = encoder.encode(`${eventId}.`);
    // What the one family signs is the end of what the other does.
    const text = encoder.encode(`${eventId}.${timestamp}.${body}`);
    const [service, standard] = await Promise.all([
      crypto.subtle.sign("HMAC", serviceKey, text.subarray(prefix.length)),
      crypto.subtle.sign("HMAC", standardKey, text),
    ]);
    return {
      "X-Service-Signature": `t=${timestamp},v1=${toHex(new Uint8Array(service))}`,
      "webhook-id": eventId,
      "webhook-timestamp": String(timestamp),
      "webhook-signature": `v1,${toBase64(new Uint8Array(standard))}`,
    };
  };
}

/** The headers of a `Signer` that is used once. */
export async function signatureHeaders(
  secret: string,
  ...delivery: Parameters<Signer>
): ReturnType<Signer> {
  return (await createSigner(secret))(...delivery);
}

const encoder = new TextEncoder();

function importKey(bytes: Uint8Array<ArrayBuffer>): Promise<CryptoKey> {
  return crypto.subtle.importKey("raw", bytes, { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
}
