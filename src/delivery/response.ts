import { HEADERS_MAX } from "../contract/limits.ts";
import { decryptJson, encryptJson } from "../encryption/seal.ts";
import { isReserved } from "../endpoints/headers.ts";
import { logError } from "../log.ts";

/*
 * The stored responses to failed attempts and test events, for developers who debug a webhook handler. A response may
 * repeat the body of its request, so it is encrypted under the data key of its workspace, like the data of leads.
 */

/** Maximum bytes of a response's body that are stored, as JSON: a control character takes six. */
export const RESPONSE_KEPT_BYTES = 1_024;
/** How long to wait for the body once the response has begun; not part of the attempt's duration. */
export const RESPONSE_READ_MS = 250;
/** Maximum bytes of a response's headers that are stored. */
export const HEADERS_KEPT_BYTES = 1_024;
/** Maximum bytes of the value of one header. */
const HEADER_VALUE_KEPT_BYTES = 200;

/** The stored part of a response: its headers, the beginning of its body, and a clue. */
export interface StoredResponse {
  headers: Record<string, string>;
  body: string;
  /** Whether the body is longer than its stored part. */
  truncated: boolean;
  /** The URL to which the response redirects. */
  location?: string | undefined;
  /** The runtime's message about a failed connection. */
  error?: string | undefined;
}

const NOTHING_READ: StoredResponse = { headers: {}, body: "", truncated: false };

/** The delivery that an attempt belongs to. */
interface DeliveryKey {
  subscriptionId: string;
  eventId: string;
}

/**
 * Encrypts the response to an attempt for storage, in hexadecimal; null if there was none. Never rejects. A failure to
 * encrypt is only logged, because it must not fail the delivery.
 *
 * @param openKey opens the data key of the workspace; null if it has none.
 * @param sent the headers of the request; the values of custom ones are masked wherever they are repeated.
 */
export async function sealResponse(
  { subscriptionId, eventId }: DeliveryKey,
  response: Promise<StoredResponse | null>,
  clue: Pick<StoredResponse, "location" | "error"> | null,
  openKey: () => Promise<CryptoKey | null>,
  sent: Record<string, string>,
): Promise<string | null> {
  try {
    const read = await response;
    const whole = clue ? { ...NOTHING_READ, ...read, ...clue } : read;
    const masked = whole && maskResponse(whole, listSecrets(sent));
    const key = masked && (await openKey());
    if (!masked || !key) return null;
    return await encryptJson(key, ownerOf({ subscriptionId, eventId }), masked);
  } catch (error) {
    logError("response_store_failed", error, { eventId, webhookId: subscriptionId });
    return null;
  }
}

/** Stands in place of a secret. */
const MASK = "***";
/** Minimum length of a value that is masked. A shorter one is not a secret, and masking it would garble a response. */
const SECRET_MIN_LENGTH = 4;
/** Maximum forms of secrets that are sought in a response, because each takes time. `Basic …` has up to ten. */
export const SECRETS_MAX = 10 * HEADERS_MAX;

/**
 * Lists the values of custom headers in every form in which a response may repeat them. A value may be whole, word by
 * word (as in `Bearer token`), decoded (as in `Basic …`), or escaped as in JSON, HTML and URLs.
 *
 * @returns null if there are too many to seek.
 */
function listSecrets(sent: Record<string, string>): Secret[] | null {
  const values = Object.entries(sent).flatMap(([name, value]) => (isReserved(name) ? [] : value));
  const parts = values
    .flatMap((value) => [value, ...value.split(/[\s,;=]+/), ...decodeBasic(value)])
    .filter(
      (part) => part.length >= SECRET_MIN_LENGTH && !/^(bearer|basic|token|digest)$/i.test(part),
    );
  const forms = new Set<string>();
  for (const part of parts) {
    const json = JSON.stringify(part).slice(1, -1);
    const escaped = [json, json.replaceAll("/", "\\/"), toHtml(part), encodeURIComponent(part)];
    for (const form of [part, ...escaped]) forms.add(form);
    if (forms.size > SECRETS_MAX) return null;
  }
  return [...forms].map(toSecret);
}

/** Decodes Basic credentials (RFC 7617): user with password, and the password alone. */
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

/** Returns the response with its secrets masked, or with all its text masked if there are too many to seek. */
function maskResponse(response: StoredResponse, secrets: Secret[] | null): StoredResponse {
  const mask = (text: string) => (secrets ? maskText(text, secrets) : text && MASK);
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

/**
 * Masks each secret, including the beginning of one at the end of a text that was cut. All secrets are found before any
 * is masked. Otherwise, a user of the portal could set a header that overlaps with the beginning of another one's value
 * in an echo, and read the rest of that value.
 */
function maskText(text: string, secrets: Secret[]): string {
  const isSecret = new Uint8Array(text.length);
  const codes = codesOf(text);
  for (const secret of secrets)
    if (text.includes(secret.start)) markSecret(isSecret, codes, secret);
  let masked = "";
  for (let at = 0; at < text.length; at++)
    if (!isSecret[at]) masked += text[at];
    else if (!isSecret[at - 1]) masked += MASK;
  return masked;
}

/**
 * A secret as the algorithm of Knuth, Morris and Pratt seeks it. Its time grows with the length of the text, even if
 * the text repeats parts of the secret thousands of times.
 */
interface Secret {
  /** The beginning, as a text without it is searched fastest. */
  start: string;
  codes: Uint16Array;
  /** By length of a beginning of the secret: the length of the longest shorter beginning with which it ends. */
  shorter: Uint16Array;
}

function toSecret(text: string): Secret {
  const codes = codesOf(text);
  const secret = {
    start: text.slice(0, SECRET_MIN_LENGTH),
    codes,
    shorter: new Uint16Array(codes.length + 1),
  };
  for (let length = 1; length < codes.length; length++)
    secret.shorter[length + 1] = extend(
      secret,
      secret.shorter[length] as number,
      codes[length] as number,
    );
  return secret;
}

/** Returns the length of the beginning of a secret with which a text ends, once it has one character more. */
function extend({ codes, shorter }: Secret, length: number, character: number): number {
  let had = length;
  while (had > 0 && (had === codes.length || codes[had] !== character))
    had = shorter[had] as number;
  return codes[had] === character ? had + 1 : 0;
}

/** Marks a secret wherever a text has it, and its beginning at the end of the text. */
function markSecret(isSecret: Uint8Array, text: Uint16Array, secret: Secret): void {
  for (let end = 1, length = 0, marked = 0; end <= text.length; end++) {
    length = extend(secret, length, text[end - 1] as number);
    const isWhole = length === secret.codes.length;
    if (!isWhole && (end < text.length || length < SECRET_MIN_LENGTH)) continue;
    isSecret.fill(1, Math.max(marked, end - length), end);
    marked = end;
  }
}

/** Returns the code units of a text, which are read faster than its characters. */
function codesOf(text: string): Uint16Array {
  const codes = new Uint16Array(text.length);
  for (let at = 0; at < text.length; at++) codes[at] = text.charCodeAt(at);
  return codes;
}

/** Decrypts a stored response; null if none was stored, or the workspace's data key was deleted. */
export async function openResponse(
  key: CryptoKey | null,
  owner: DeliveryKey,
  sealed: string | null,
): Promise<StoredResponse | null> {
  return sealed === null || !key ? null : decryptJson(key, ownerOf(owner), sealed);
}

const ownerOf = ({ subscriptionId, eventId }: DeliveryKey) => `${subscriptionId}/${eventId}`;

/**
 * Reads the headers of a response and the beginning of its body. Reads no more than is stored, and cancels the rest.
 *
 * @param signal ends the wait for the body.
 */
export async function readResponse(
  { body, headers }: Response,
  signal: AbortSignal,
): Promise<StoredResponse> {
  const { bytes, isWhole } = await readStart(body, signal);
  // Decoded as a stream, so that a character that was cut is left out.
  const text = new TextDecoder().decode(bytes, { stream: !isWhole });
  const kept = startOf(text, RESPONSE_KEPT_BYTES);
  return { headers: headersKept(headers), body: kept, truncated: !isWhole || kept !== text };
}

/** Returns the headers that fit, the content type first. Cookies are left out, as they do not explain a failure. */
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

/** Returns the beginning of a text that takes up to `maxBytes` in JSON, in whole characters. */
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
    // If the connection breaks off, the part that arrived is stored.
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
