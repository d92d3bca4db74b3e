import { openUnder, sealUnder } from "../encryption/personal-data.ts";
import type { AttemptResponse } from "../history/views.ts";
import { logError } from "../log.ts";
import { isReserved } from "../subscriptions/headers.ts";

/*
 * What is kept of an attempt that failed, or of a test, besides its outcome, for those who debug a receiver:
 * its answer. It may repeat the body that was posted, so it is stored as leads are: encrypted under their
 * workspace's data key.
 */

/** Maximum bytes of an answer's body that are kept, as they are stored: control characters take six each. */
export const RESPONSE_KEPT_BYTES = 1_024;
/** How long to wait for them once the response has begun; not part of its duration. */
export const RESPONSE_READ_MS = 250;
/** Maximum bytes of the answer's headers that are kept, and of the value of each. */
export const HEADERS_KEPT_BYTES = 1_024;
const HEADER_VALUE_KEPT_BYTES = 200;

const NOTHING_READ: AttemptResponse = { headers: {}, body: "", truncated: false };

/** The delivery that an attempt belongs to. */
interface DeliveryKey {
  subscriptionId: string;
  eventId: string;
}

/**
 * The answer to an attempt as it is stored: encrypted, in hexadecimal; null if there was none. Never rejects: if
 * it cannot be kept, that is logged.
 *
 * @param openKey opens the data key of the workspace; null if it has none.
 * @param sent the headers of the request; the values of custom ones are masked wherever they are repeated.
 */
export async function keep(
  { subscriptionId, eventId }: DeliveryKey,
  response: Promise<AttemptResponse | null>,
  clue: Pick<AttemptResponse, "location" | "error"> | null,
  openKey: () => Promise<CryptoKey | null>,
  sent: Record<string, string>,
): Promise<string | null> {
  try {
    const read = await response;
    const whole = clue ? { ...NOTHING_READ, ...read, ...clue } : read;
    const said = whole && maskResponse(whole, listSecrets(sent));
    const key = said && (await openKey());
    if (!said || !key) return null;
    return await sealUnder(key, ownerOf({ subscriptionId, eventId }), said);
  } catch (error) {
    logError("response_not_kept", error, { eventId, webhookId: subscriptionId });
    return null;
  }
}

/** What stands in place of a secret. */
const MASK = "***";
/** Shorter values are no secrets, and masking them would garble a response. */
const SECRET_MIN_LENGTH = 4;

/**
 * The values of custom headers that a response may repeat: whole, word by word (as in `Bearer token`), decoded
 * (as in `Basic …`), and in the forms in which JSON, HTML and URLs write them. The longest come first.
 */
function listSecrets(sent: Record<string, string>): string[] {
  const values = Object.entries(sent).flatMap(([name, value]) => (isReserved(name) ? [] : value));
  const parts = values.flatMap((value) => [
    value,
    ...value.split(/[\s,;=]+/),
    ...decodeBasic(value),
  ]);
  const forms = parts
    .filter(
      (part) => part.length >= SECRET_MIN_LENGTH && !/^(bearer|basic|token|digest)$/i.test(part),
    )
    .flatMap((part) => {
      const json = JSON.stringify(part).slice(1, -1);
      return [part, json, json.replaceAll("/", "\\/"), toHtml(part), encodeURIComponent(part)];
    });
  return [...new Set(forms)].toSorted((a, b) => b.length - a.length);
}

/** The password of Basic credentials, and both with the user (RFC 7617). */
function decodeBasic(value: string): string[] {
  const [, encoded] = /^basic +(\S+)$/i.exec(value) ?? [];
  if (encoded === undefined) return [];
  try {
    const credentials = atob(encoded);
    return [credentials, credentials.slice(credentials.indexOf(":") + 1)];
  } catch {
    return [];
  }
}

function toHtml(text: string): string {
  return text
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;")
    .replaceAll('"', "&quot;")
    .replaceAll("'", "&#39;");
}

/** The same response without secrets. */
function maskResponse(response: AttemptResponse, secrets: string[]): AttemptResponse {
  const mask = (text: string) => maskText(text, secrets);
  const { headers, body, location, error } = response;
  return {
    ...response,
    headers: Object.fromEntries(
      Object.entries(headers).map(([name, value]) => [name, mask(value)]),
    ),
    body: mask(body),
    ...(location === undefined ? {} : { location: mask(location) }),
    ...(error === undefined ? {} : { error: mask(error) }),
  };
}

/** Masks each secret, also one of which only the beginning is left at the end of a text that was cut. */
function maskText(text: string, secrets: string[]): string {
  const masked = secrets.reduce((left, secret) => left.replaceAll(secret, MASK), text);
  const tail = masked.slice(-SECRET_MIN_LENGTH);
  for (const secret of secrets.filter((each) => each.includes(tail)))
    for (let length = secret.length - 1; length >= SECRET_MIN_LENGTH; length--)
      if (masked.endsWith(secret.slice(0, length))) return masked.slice(0, -length) + MASK;
  return masked;
}

/** The response; null if none was kept, or the workspace's data key is gone. */
export async function openResponse(
  key: CryptoKey | null,
  owner: DeliveryKey,
  sealed: string | null,
): Promise<AttemptResponse | null> {
  return sealed === null || !key ? null : openUnder(key, ownerOf(owner), sealed);
}

const ownerOf = ({ subscriptionId, eventId }: DeliveryKey) => `${subscriptionId}/${eventId}`;

/**
 * The headers of a response and the start of its body. Reads no more than it needs, and cancels the rest.
 *
 * @param signal ends the wait for more.
 */
export async function readResponse(
  { body, headers }: Response,
  signal: AbortSignal,
): Promise<AttemptResponse> {
  const { bytes, isWhole } = await readStart(body, signal);
  // As a stream, without a character that was cut.
  const text = new TextDecoder().decode(bytes, { stream: !isWhole });
  const kept = startOf(text, RESPONSE_KEPT_BYTES);
  return { headers: headersKept(headers), body: kept, truncated: !isWhole || kept !== text };
}

/** The headers as far as they fit, the content type first. Cookies say nothing about a failure. */
function headersKept(headers: Headers): Record<string, string> {
  const kept: Record<string, string> = {};
  let room = HEADERS_KEPT_BYTES;
  const names = new Set(["content-type", ...headers.keys()]);
  for (const name of names) {
    const value = headers.get(name);
    if (value === null || name === "set-cookie") continue;
    const start = startOf(value, HEADER_VALUE_KEPT_BYTES);
    room -= bytesOf({ [name]: start });
    if (room < 0) break;
    kept[name] = start;
  }
  return kept;
}

const encoder = new TextEncoder();

const bytesOf = (value: unknown) => encoder.encode(JSON.stringify(value)).length;

/** As much of a text as takes up to `maxBytes` in JSON, in whole characters. */
function startOf(text: string, maxBytes: number): string {
  let [length, bytes] = [0, 0];
  for (const character of text) {
    bytes += bytesOf(character) - 2;
    if (bytes > maxBytes) break;
    length += character.length;
  }
  return text.slice(0, length);
}

async function readStart(body: ReadableStream<Uint8Array> | null, signal: AbortSignal) {
  const bytes: number[] = [];
  const taken = (isWhole: boolean) => ({ bytes: new Uint8Array(bytes), isWhole });
  if (!body) return taken(true);
  const reader = body.getReader();
  const cancel = () => void reader.cancel().catch(() => {});
  signal.addEventListener("abort", cancel);
  for (;;) {
    // A body that breaks off is kept as far as it came.
    const chunk = await reader.read().catch(() => null);
    if (!chunk || signal.aborted) return taken(false);
    if (chunk.done) return taken(true);
    const room = RESPONSE_KEPT_BYTES - bytes.length;
    bytes.push(...chunk.value.subarray(0, room));
    if (chunk.value.length <= room) continue;
    cancel();
    return taken(false);
  }
}
