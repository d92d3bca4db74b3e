import { z } from "@hono/zod-openapi";
import type { Position } from "../contract/cursor.ts";
import { LeadSource } from "../contract/enumerations.ts";
import { derivedId } from "../contract/ids.ts";
import { LEAD_SEARCH_MAX_LENGTH } from "../contract/limits.ts";
import { isoTime } from "../contract/time.ts";
import type { Database } from "../db/client.ts";
import type { Page, PageRequest } from "../db/page.ts";
import { type DecryptedLead, findLead, readLeadPage } from "./leads.ts";
import { PERSON, toPersonalData } from "./person.ts";

/** Maximum leads that one query reads. */
const READ_AT_ONCE = 500;
/** Maximum queries for one page of a search. */
const QUERIES_MAX = 10;
/** Maximum leads that one page of a search reads. */
export const SEARCHED_MAX = READ_AT_ONCE * QUERIES_MAX;
/** Number of leads after which a page of `findPerson` reads no more. */
const FOUND_MAX = 100;
/** Minimum digits that two spellings of a phone number share, unless they are equal. */
const PHONE_DIGITS_MIN = 7;
/** Minimum length of a part of an e-mail address that finds it. */
const EMAIL_PART_MIN = 3;

/** A lead with all its personal data. */
export const FoundLead = z.object({
  id: z.string(),
  source: LeadSource,
  agentId: z.string(),
  ...PERSON,
  createdAt: z.iso.datetime(),
});
type FoundLead = z.infer<typeof FoundLead>;

interface Wanted {
  email?: string | null | undefined;
  phone?: string | null | undefined;
  reference?: string | null | undefined;
}

/**
 * Finds one page of the workspace's leads that are about a person. Personal data is encrypted, so a search by e-mail
 * address or phone number decrypts all leads, a bounded number for each page, which may be empty. A search by
 * reference is a look-up.
 *
 * @param keys `ENCRYPTION_KEYS`.
 * @param after where the previous page ended.
 * @returns also the ids of leads that cannot be decrypted, because they may be about that person.
 * @throws Error if the workspace's data key cannot be decrypted.
 */
export async function findPerson(
  db: Database,
  keys: string,
  workspaceId: string,
  { email, phone, reference }: Wanted,
  after: Position | null,
): Promise<Page<FoundLead> & { unreadable: string[] }> {
  if (reference != null) {
    const id = await derivedId("lead", workspaceId, reference);
    const lead = await findLead(db, keys, workspaceId, id);
    return { ...splitUnreadable(lead ? [lead] : []), next: null };
  }
  const address = email != null ? sameEmail(email) : null;
  const numbers = numbersIn(phone ?? "");
  const isWanted = (lead: FoundLead) =>
    address !== null
      ? lead.email !== null && sameEmail(lead.email) === address
      : hasNumber(lead.phone, numbers);
  return search(db, keys, workspaceId, isWanted, FOUND_MAX, after);
}

/**
 * Finds one page of the workspace's leads that a text is about. The text is a name or a part of it, an e-mail address
 * or a part of it, or a phone number. It reads as many leads as `findPerson`, so a page may be empty and still have a
 * next one.
 *
 * @returns the ids of at most `limit` leads.
 */
export async function findLeadIds(
  db: Database,
  keys: string,
  workspaceId: string,
  text: string,
  { limit, after }: PageRequest,
): Promise<Page<string>> {
  const { items, next } = await search(db, keys, workspaceId, matching(text), limit, after);
  const found = items.slice(0, limit);
  const last = items.length > limit ? found.at(-1) : undefined;
  return {
    items: found.map(({ id }) => id),
    next: last ? { at: Date.parse(last.createdAt), id: last.id } : next,
  };
}

/** Reads a page of the leads that `isWanted` admits. Reads no more once it has found `max`; the last query may exceed it. */
async function search(
  db: Database,
  keys: string,
  workspaceId: string,
  isWanted: (lead: FoundLead) => boolean,
  max: number,
  after: Position | null,
): Promise<Page<FoundLead> & { unreadable: string[] }> {
  const unreadable: string[] = [];
  const items: FoundLead[] = [];
  let next = after;
  let limit = READ_AT_ONCE;
  for (let queries = 0; queries < QUERIES_MAX && items.length < max; queries++) {
    const request = { limit, after: next };
    const page = await readLeadPage(db, keys, workspaceId, request);
    const read = splitUnreadable(page.items);
    items.push(...read.items.filter(isWanted));
    unreadable.push(...read.unreadable);
    next = page.next;
    if (next === null) break;
    // Pages of large leads are short, but SQLite reads as many as the limit asks for.
    const isShort = page.items.length < limit;
    limit = isShort ? page.items.length : Math.min(READ_AT_ONCE, 2 * limit);
  }
  return { items, unreadable, next };
}

/** Separates the leads from the ids of those that cannot be decrypted. */
function splitUnreadable(leads: DecryptedLead[]): { items: FoundLead[]; unreadable: string[] } {
  const items: FoundLead[] = [];
  const unreadable: string[] = [];
  for (const { id, source, agentId, person, createdAt } of leads) {
    if (!person) unreadable.push(id);
    else
      items.push({ id, source, agentId, ...toPersonalData(person), createdAt: isoTime(createdAt) });
  }
  return { items, unreadable };
}

/**
 * Returns the condition of `findLeadIds`: the name of a lead has each word of a text, its e-mail address has the text as a
 * part, or its phone number is the text. The text is normalized once for all leads. Only the first
 * `LEAD_SEARCH_MAX_LENGTH` characters of a name are normalized, because one character can become eighteen.
 */
function matching(text: string): (lead: FoundLead) => boolean {
  const wanted = fold(text);
  // One character can become four words, so a text could have hundreds of the same ones.
  const words = [...new Set(wanted.split(" "))];
  // A name with a digit is no phone number.
  const isNumber = !/[\p{L}@]/u.test(text) && digitsOf(text).length >= PHONE_DIGITS_MIN;
  const numbers = isNumber ? numbersIn(text) : [];
  return ({ name, email, phone }) => {
    if (wanted === "") return false;
    const known = fold((name ?? "").slice(0, LEAD_SEARCH_MAX_LENGTH));
    if (words.every((word) => known.includes(word))) return true;
    if (email !== null && wanted.length >= EMAIL_PART_MIN && sameEmail(email).includes(wanted))
      return true;
    return hasNumber(phone, numbers);
  };
}

/**
 * Shortens each run of combining marks to 30 (Stream-Safe Text Format, UAX 15), which is more than any language needs.
 * Use it before `normalize`, whose time grows with the square of the length of a run.
 */
function toStreamSafe(text: string): string {
  return text.replace(/(\p{M}{30})\p{M}+/gu, "$1");
}

/** Returns a text without case, accents and repeated spaces. */
function fold(text: string): string {
  const letters = toStreamSafe(text).normalize("NFKD").replace(/\p{M}/gu, "");
  return letters.toLowerCase().replace(/\s+/g, " ").trim();
}

/** Normalizes an e-mail address, so that its spellings are equal. */
function sameEmail(address: string): string {
  return toStreamSafe(address.trim()).normalize("NFC").toLowerCase();
}

/** Whether the phone number of a lead may be one of these numbers. */
function hasNumber(phone: string | null, numbers: string[]): boolean {
  if (phone === null || numbers.length === 0) return false;
  return numbersIn(phone).some((own) => numbers.some((number) => isSameNumber(own, number)));
}

/** Returns the digits of the text as one number, and of its parts, because a source may join several numbers. */
function numbersIn(text: string): string[] {
  const parts = text.split(/[^\p{Nd}\p{Zs}.()+-]+/u).map(digitsOf);
  return [digitsOf(text), ...parts.filter((digits) => digits.length >= PHONE_DIGITS_MIN)];
}

/**
 * Whether two phone numbers may be spellings of the same number, with or without country code, trunk zero and
 * extension. Numbers of different countries may count as the same.
 */
function isSameNumber(one: string, other: string): boolean {
  const [short, long] = one.length < other.length ? [one, other] : [other, one];
  if (short === "") return false;
  if (short === long) return true;
  return short.length >= PHONE_DIGITS_MIN && (long.endsWith(short) || hasTrunkZero(long, short));
}

/** Whether a number is another one with a trunk zero behind its country code, as in `+33 (0)6 12 34 56 78`. */
function hasTrunkZero(long: string, short: string): boolean {
  return [1, 2, 3].some(
    (at) => long[at] === "0" && long.slice(0, at) + long.slice(at + 1) === short,
  );
}

/** Returns the digits of a phone number, without leading zeros and an extension. */
function digitsOf(number: string): string {
  return (
    toStreamSafe(number)
      .normalize("NFKC")
      // Arabic and Persian digits become ASCII.
      .replace(/[\u0660-\u0669\u06F0-\u06F9]/g, (digit) => String(digit.charCodeAt(0) & 15))
      // An extension follows digits, unlike the x of `Fixe : 01 23 45 67 89`.
      .replace(/^(\D*\d.*?)(#|;|x|poste).*$/is, "$1")
      .replace(/\D/g, "")
      .replace(/^0+/, "")
  );
}
