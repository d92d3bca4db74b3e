import { fromBase64, toBase64, toHex } from "../primitives/bytes.ts";

const SECRET_PREFIX = "whsec_";
const SECRET_BYTES = 32;

/** Generates a signing secret: `whsec_` followed by the base64 of 32 random bytes. */
export function mintSecret(): string {
  return SECRET_PREFIX + toBase64(crypto.getRandomValues(new Uint8Array(SECRET_BYTES)));
}

/**
 * Signs one attempt. Returns the headers of both schemes: the contract's `X-Service-Signature`,
 * keyed by the secret's text, and Standard Webhooks, keyed by the decoded bytes after its prefix.
 *
 * @param body the exact text that is sent.
 * @param now Unix milliseconds; webhook handlers reject timestamps that are more than 5 minutes off.
 */
export type Signer = (
  eventId: string,
  body: string,
  now: number,
) => Promise<Record<string, string>>;

/**
 * Creates a signer for many deliveries, which imports its keys once. With several secrets, each signs in both
 * schemes, in order. A webhook handler accepts a delivery if any signature is valid.
 */
export async function createSigner(...secrets: string[]): Promise<Signer> {
  const keys = await Promise.all(
    secrets.map(async (secret) => ({
      service: await importKey(new Uint8Array(encoder.encode(secret))),
      standard: await importKey(fromBase64(secret.slice(SECRET_PREFIX.length))),
    })),
  );
  return async (eventId, body, now) => {
    const timestamp = Math.floor(now / 1000);
    // The text that `X-Service-Signature` signs is a suffix of the text that Standard Webhooks signs. An id is ASCII,
    // so its length is its number of bytes.
    const text = encoder.encode(`${eventId}.${timestamp}.${body}`);
    const forService = [`t=${timestamp}`];
    const forStandard: string[] = [];
    for (const { service, standard } of keys) {
      forService.push(`v1=${toHex(await sign(service, text.subarray(eventId.length + 1)))}`);
      forStandard.push(`v1,${toBase64(await sign(standard, text))}`);
    }
    return {
      "X-Service-Signature": forService.join(),
      "webhook-id": eventId,
      "webhook-timestamp": String(timestamp),
      "webhook-signature": forStandard.join(" "),
    };
  };
}

async function sign(key: CryptoKey, text: BufferSource): Promise<Uint8Array<ArrayBuffer>> {
  return new Uint8Array(await crypto.subtle.sign("HMAC", key, text));
}

/** Returns the signature headers of a single delivery. */
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
