import { toHex } from "../primitives/bytes.ts";

/** The prefix of each kind of id; the last three are internal. */
export const ID_PREFIXES = {
  automation: "aut_",
  agent: "agt_",
  run: "run_",
  lead: "lea_",
  webhook: "whk_",
  event: "evt_",
  workspace: "wks_",
  key: "key_",
  replay: "rpl_",
} as const;

export type IdKind = keyof typeof ID_PREFIXES;

const ID_BYTES = 16;
/** Digits of 2^128 in base 36. */
const ID_DIGITS = 25;

/**
 * Derives the id of the record that the platform calls `reference`. It is a hash, so that recording the same
 * reference again yields the same row without a look-up.
 */
export async function derivedId(kind: IdKind, workspaceId: string, reference: string) {
  const source = new TextEncoder().encode(JSON.stringify([kind, workspaceId, reference]));
  const digest = new Uint8Array(await crypto.subtle.digest("SHA-256", source));
  return write(kind, digest.subarray(0, ID_BYTES));
}

/** Generates an id: its prefix, followed by 128 random bits. */
export function randomId(kind: IdKind): string {
  return write(kind, crypto.getRandomValues(new Uint8Array(ID_BYTES)));
}

/**
 * Generates an event id. Ids are sorted by time: 48 bits of milliseconds are followed by 80 random bits, as in
 * UUIDv7 (RFC 9562, 5.7). So events that are written together are stored together, oldest first.
 */
export function newEventId(now: number): string {
  const bytes = crypto.getRandomValues(new Uint8Array(ID_BYTES));
  bytes.set(timeBytes(now));
  return write("event", bytes);
}

/** Generates event ids that are also sorted among each other, so that their events are sent in this order. */
export function newEventIds(count: number, now: number): string[] {
  return Array.from({ length: count }, () => newEventId(now)).toSorted();
}

/** Returns the smallest possible event id at `time`. */
export function eventIdAt(time: number): string {
  const bytes = new Uint8Array(ID_BYTES);
  bytes.set(timeBytes(time));
  return write("event", bytes);
}

/** Returns when the event with this id was recorded, in Unix milliseconds. */
export function eventTimeOf(id: string): number {
  const digits = [...id.slice(ID_PREFIXES.event.length)];
  const value = digits.reduce((sum, digit) => sum * 36n + BigInt(Number.parseInt(digit, 36)), 0n);
  return Number(value >> 80n);
}

function timeBytes(time: number): Uint8Array {
  const bytes = new DataView(new ArrayBuffer(8));
  bytes.setBigUint64(0, BigInt(Math.max(0, Math.floor(time))));
  return new Uint8Array(bytes.buffer, 2);
}

/** Whether `text` has the form of our ids. Any other text is in no table. */
export function isId(kind: IdKind, text: string): boolean {
  const prefix = ID_PREFIXES[kind];
  return (
    text.length === prefix.length + ID_DIGITS &&
    text.startsWith(prefix) &&
    /^[0-9a-z]+$/.test(text.slice(prefix.length))
  );
}

function write(kind: IdKind, bytes: Uint8Array): string {
  return (
    ID_PREFIXES[kind] +
    BigInt(`0x${toHex(bytes)}`)
      .toString(36)
      .padStart(ID_DIGITS, "0")
  );
}
