import { openPersonalData, sealPersonalData } from "../encryption/personal-data.ts";
import { logError } from "../log.ts";
import { HEADERS, type Posted, TEST_HEADER } from "./post.ts";
import type { AttemptRequest, AttemptResponse } from "./views.ts";

/*
 * What is kept of an attempt besides its outcome, for those who debug a receiver. A response may repeat
 * the body that was posted, so it is stored as leads are: encrypted under their workspace's data key.
 */

/** Maximum bytes of a response body that are kept. */
export const RESPONSE_KEPT_BYTES = 1_024;
/** How long to wait for them once the response has begun; not part of its duration. */
export const RESPONSE_READ_MS = 250;
const CONTENT_TYPE_MAX = 200;

/** What is stored of an attempt besides its outcome. */
export interface StoredExchange {
  /** The values of its two signature headers, separated by a space; null if it was not sent. */
  signatures: string | null;
  /** The response, encrypted, in hexadecimal; null if there was none. */
  response: string | null;
}

export const NO_EXCHANGE: StoredExchange = { signatures: null, response: null };

const NOTHING_READ: AttemptResponse = { contentType: null, body: null, truncated: false };

/** The delivery that an attempt belongs to. */
interface DeliveryKey {
  subscriptionId: string;
  eventId: string;
}

/**
 * What to store of an attempt. Never rejects: a response that cannot be kept is logged, without it.
 *
 * @param headers what the signer made.
 * @param openKey opens the data key of the workspace; null if it has none.
 */
export async function keep(
  { subscriptionId, eventId }: DeliveryKey,
  headers: Record<string, string>,
  response: Promise<AttemptResponse | null>,
  clue: Posted["clue"],
  openKey: () => Promise<CryptoKey | null>,
): Promise<StoredExchange> {
  const signatures = `${headers["X-Service-Signature"]} ${headers["webhook-signature"]}`;
  try {
    const read = await response;
    const said = clue ? { ...NOTHING_READ, ...read, ...clue } : read;
    const key = said && (await openKey());
    const sealed =
      said && key && (await sealPersonalData(key, ownerOf({ subscriptionId, eventId }), said));
    return { signatures, response: sealed };
  } catch (error) {
    logError("response_not_kept", error, { eventId, webhookId: subscriptionId });
    return { signatures, response: null };
  }
}

/** The response; null if none was kept, or the workspace's data key is gone. */
export async function openResponse(
  key: CryptoKey | null,
  owner: DeliveryKey,
  sealed: string | null,
): Promise<AttemptResponse | null> {
  return sealed === null || !key ? null : openPersonalData(key, ownerOf(owner), sealed);
}

const ownerOf = ({ subscriptionId, eventId }: DeliveryKey) => `${subscriptionId}/${eventId}`;

/** The request of an attempt. What is the same in each post is not stored. */
export function requestOf(
  eventId: string,
  signatures: string | null,
  isTest: boolean,
): AttemptRequest | null {
  if (signatures === null) return null;
  const [service = "", ...standard] = signatures.split(" ");
  return {
    headers: {
      ...HEADERS,
      "X-Service-Signature": service,
      "webhook-id": eventId,
      "webhook-timestamp": /^t=(\d+)/.exec(service)?.[1] ?? "",
      "webhook-signature": standard.join(" "),
      ...(isTest ? TEST_HEADER : {}),
    },
  };
}

/**
 * The start of a response's body, if it is text, and its content type. Reads no more than it needs, and
 * cancels the rest.
 *
 * @param signal ends the wait for more.
 * @returns null for an empty body.
 */
export async function readResponse(
  { body, headers }: Response,
  signal: AbortSignal,
): Promise<AttemptResponse | null> {
  if (!body || headers.get("Content-Length") === "0") return null;
  const contentType = headers.get("Content-Type")?.slice(0, CONTENT_TYPE_MAX) ?? null;
  const reader = body.getReader();
  const cancel = () => void reader.cancel().catch(() => {});
  if (contentType !== null && !TEXTUAL.test(contentType)) {
    cancel();
    return { contentType, body: null, truncated: false };
  }
  signal.addEventListener("abort", cancel);
  const { bytes, isWhole } = await readStart(reader, signal);
  if (!isWhole) cancel();
  if (bytes.length === 0 && isWhole) return null;
  const text = decode(bytes, contentType, isWhole);
  return { contentType, body: text, truncated: text !== null && !isWhole };
}

const TEXTUAL =
  /^\s*(text\/|application\/(?:[\w.-]+\+)?(?:json|xml|yaml|javascript|x-ndjson|x-www-form-urlencoded)\b)/i;

type Reader = ReadableStreamDefaultReader<Uint8Array>;

async function readStart(reader: Reader, signal: AbortSignal) {
  const bytes: number[] = [];
  const taken = (isWhole: boolean) => ({ bytes: new Uint8Array(bytes), isWhole });
  for (;;) {
    // A body that breaks off is kept as far as it came.
    const chunk = await reader.read().catch(() => null);
    if (!chunk || signal.aborted) return taken(false);
    if (chunk.done) return taken(true);
    const room = RESPONSE_KEPT_BYTES - bytes.length;
    bytes.push(...chunk.value.subarray(0, room));
    if (chunk.value.length > room) return taken(false);
  }
}

/** Decodes the start of a text, without a character that was cut. Null if it is not text. */
function decode(bytes: Uint8Array, contentType: string | null, isWhole: boolean): string | null {
  try {
    return decoderOf(contentType).decode(bytes, { stream: !isWhole });
  } catch {
    return null;
  }
}

function decoderOf(contentType: string | null): TextDecoder {
  // Without a content type, it is text if it is valid UTF-8.
  if (contentType === null) return new TextDecoder("utf-8", { fatal: true, ignoreBOM: false });
  const [, charset = "utf-8"] = /charset="?([\w.:-]+)/i.exec(contentType) ?? [];
  try {
    return new TextDecoder(charset);
  } catch {
    return new TextDecoder();
  }
}
