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

/**
 * A signer that is used for many deliveries: its keys are imported once. With several secrets, each
 * signs in both families, in their order: a receiver takes a delivery if any signature is right.
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
    // What the one family signs is the end of what the other does; ids are ASCII.
    const text = encoder.encode(`${eventId}.${timestamp}.${body}`);
    const [forService, forStandard] = await Promise.all([
      Promise.all(keys.map(({ service }) => sign(service, text.subarray(eventId.length + 1)))),
      Promise.all(keys.map(({ standard }) => sign(standard, text))),
    ]);
    return {
      "X-Service-Signature": [
        `t=${timestamp}`,
        ...forService.map((mac) => `v1=${toHex(mac)}`),
      ].join(),
      "webhook-id": eventId,
      "webhook-timestamp": String(timestamp),
      "webhook-signature": forStandard.map((mac) => `v1,${toBase64(mac)}`).join(" "),
    };
  };
}

async function sign(key: CryptoKey, text: BufferSource): Promise<Uint8Array<ArrayBuffer>> {
  return new Uint8Array(await crypto.subtle.sign("HMAC", key, text));
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
