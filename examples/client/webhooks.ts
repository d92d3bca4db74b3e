import { createHmac, timingSafeEqual } from "node:crypto";
import type { components } from "./api.js";

/** An event; its `type` determines the shape of `data`. */
export type WebhookDelivery = components["schemas"]["WebhookDelivery"];

/** How much a delivery's timestamp may differ from the current time, in either direction. */
const TOLERANCE_SECONDS = 300;

/** A delivery that is forged, tampered with, or not recent. Respond with 401. */
export class SignatureError extends Error {
  override readonly name = "SignatureError";
}

/**
 * Verifies a delivery and returns its event.
 *
 * @param body the exact bytes received, not JSON that was parsed and serialised again.
 * @param signature the header `X-Service-Signature`: `t=<unix seconds>,v1=<hex>`. While the secret is
 *   being rotated, it has several `v1`, one of which is valid.
 * @throws SignatureError if no signature is valid, or its timestamp differs from the current time by
 *   more than 5 minutes.
 */
export function verifyDelivery(
  body: Uint8Array,
  signature: string | string[] | null | undefined,
  secret: string,
): WebhookDelivery {
  const fields = String(signature)
    .split(",")
    .map((field) => field.split("="));
  const time = fields.find(([name]) => name === "t")?.[1] ?? "";
  if (!/^\d+$/.test(time)) throw new SignatureError("the signature has no timestamp");
  if (Math.abs(Date.now() / 1_000 - Number(time)) > TOLERANCE_SECONDS)
    throw new SignatureError("the timestamp differs from the current time by more than 5 minutes");
  const hmac = createHmac("sha256", secret).update(`${time}.`).update(body);
  const expected = Buffer.from(hmac.digest("hex"));
  const isValid = fields.some(([name, value = ""]) => {
    const given = Buffer.from(value);
    return name === "v1" && given.length === expected.length && timingSafeEqual(given, expected);
  });
  if (!isValid) throw new SignatureError("no signature is valid");
  return JSON.parse(new TextDecoder().decode(body));
}
