import { createHmac, timingSafeEqual } from "node:crypto";
import type { components } from "./api.js";

/** An event: its `type` says what `data` is. */
export type WebhookDelivery = components["schemas"]["WebhookDelivery"];

/** How far the time of a delivery may lie from now, either way. */
const TOLERANCE_SECONDS = 300;

/** A delivery that is forged, changed, or not of these five minutes: answer it 401. */
export class SignatureError extends Error {
  override readonly name = "SignatureError";
}

/**
 * The event of a delivery that is genuine.
 *
 * @param body the bytes as they came, not JSON that was parsed and written again.
 * @param signature the header `X-Service-Signature`: `t=<unix seconds>,v1=<hex>`. While the secret is
 * being replaced it has several `v1`, one of which is right.
 * @throws SignatureError when no signature is right, or its time is more than 5 minutes from now.
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
  if (!/^\d+$/.test(time)) throw new SignatureError("the signature has no time");
  if (Math.abs(Date.now() / 1_000 - Number(time)) > TOLERANCE_SECONDS)
    throw new SignatureError("the time is more than 5 minutes from now");
  const hmac = createHmac("sha256", secret).update(`${time}.`).update(body);
  const expected = Buffer.from(hmac.digest("hex"));
  const isRight = fields.some(([name, value = ""]) => {
    const given = Buffer.from(value);
    return name === "v1" && given.length === expected.length && timingSafeEqual(given, expected);
  });
  if (!isRight) throw new SignatureError("no signature is right");
  return JSON.parse(new TextDecoder().decode(body));
}
