import { z } from "@hono/zod-openapi";
import type { Position } from "../contract/cursor.ts";
import { LeadSource } from "../contract/enumerations.ts";
import { derivedId } from "../contract/ids.ts";
import { isoTime } from "../contract/time.ts";
import type { Database } from "../db/client.ts";
import type { Listing } from "../db/page.ts";
import { findLeadAs, type LeadRow, listLeadsAs, readPersonalData } from "./leads.ts";
import { PERSON, toPersonalData } from "./person.ts";

/** Maximum leads that one query reads; fewer if they are large. */
const READ_AT_ONCE = 500;
/** Maximum such queries for one page of a search. */
const QUERIES_MAX = 10;
/** A page of a search is full at this many leads; those read last may exceed it. */
const FOUND_MAX = 100;
/** Of a phone number, the part that all its spellings have: neither country code nor leading zero. */
const PHONE_DIGITS = 9;

/** A lead with everything known about its person. */
export const FoundLead = z.object({
  id: z.string(),
  source: LeadSource,
  agentId: z.string(),
  ...PERSON,
  createdAt: z.iso.datetime(),
});
type FoundLead = z.infer<typeof FoundLead>;

/** Whom to find, by one of these. */
interface Wanted {
  email?: string | null | undefined;
  phone?: string | null | undefined;
  reference?: string | null | undefined;
}

/**
 * One page of the workspace's leads that are about a person. What identifies people is encrypted, so all
 * leads are read and decrypted, a bounded number for each page, which may be empty; a reference is
 * looked up.
 *
 * @param keys `ENCRYPTION_KEYS`.
 * @param after where the previous page ended.
 * @throws Error if a lead cannot be decrypted.
 */
export async function findPerson(
  db: Database,
  keys: string,
  workspaceId: string,
  { email, phone, reference }: Wanted,
  after: Position | null,
): Promise<Listing<FoundLead>> {
  if (reference != null) {
    const id = await derivedId("lead", workspaceId, reference);
    const found = await findLeadAs(readFound, db, keys, workspaceId, id);
    return { items: found ? [found] : [], next: null };
  }
  const isWanted = (lead: FoundLead) =>
    email != null
      ? lead.email !== null && sameEmail(lead.email) === sameEmail(email)
      : lead.phone !== null && samePhone(lead.phone) === samePhone(phone ?? "");
  const items: FoundLead[] = [];
  let next = after;
  for (let queries = 0; queries < QUERIES_MAX && items.length < FOUND_MAX; queries++) {
    const request = { limit: READ_AT_ONCE, after: next };
    const read = await listLeadsAs(readFound, db, keys, workspaceId, request);
    items.push(...read.items.filter(isWanted));
    next = read.next;
    if (next === null) break;
  }
  return { items, next };
}

async function readFound(dataKey: CryptoKey | null, row: LeadRow): Promise<FoundLead> {
  const { id, source, agentId, createdAt } = row;
  const person = toPersonalData(await readPersonalData(dataKey, row));
  return { id, source, agentId, ...person, createdAt: isoTime(createdAt) };
}

/** The same for all spellings of an e-mail address. */
function sameEmail(address: string): string {
  return address.trim().normalize("NFC").toLowerCase();
}

/** The same for all spellings of a phone number, and perhaps for one of another country. */
function samePhone(number: string): string {
  return number.replace(/\D/g, "").slice(-PHONE_DIGITS);
}
