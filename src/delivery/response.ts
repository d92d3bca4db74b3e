import { openUnder, sealUnder } from "../encryption/personal-data.ts";
import type { AttemptResponse } from "../history/views.ts";
import { logError } from "../log.ts";
import type { Posted } from "./post.ts";

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
 */
export async function keep(
  { subscriptionId, eventId }: DeliveryKey,
  response: Promise<AttemptResponse | null>,
  clue: Posted["clue"],
  openKey: () => Promise<CryptoKey | null>,
): Promise<string | null> {
  try {
    const read = await response;
    const said = clue ? { ...NOTHING_READ, ...read, ...clue } : read;
    const key = said && (await openKey());
    if (!said || !key) return null;
    return await sealUnder(key, ownerOf({ subscriptionId, eventId }), said);
  } catch (error) {
    logError("response_not_kept", error, { eventId, webhookId: subscriptionId });
    return null;
  }
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
