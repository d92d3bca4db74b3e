import { DAY_MS } from "../../src/contract/time.ts";

/*
 * The filters of a list of deliveries in the address of the page. Days are those of the chart, in UTC.
 */

const NAMES = [
  "state",
  "type",
  "status",
  "when",
  "since",
  "until",
  "eventId",
  "leadId",
  "unknown",
] as const;

type Name = (typeof NAMES)[number];

/** Returns the filters of an address, without the page. */
export function filtersOf(query: URLSearchParams): Record<Name, string | null> {
  return Object.fromEntries(NAMES.map((name) => [name, query.get(name)])) as Record<
    Name,
    string | null
  >;
}

/** Whether filters narrow the list. */
export function isNarrowed(query: URLSearchParams): boolean {
  return query.has("cursor") || Object.values(filtersOf(query)).some(Boolean);
}

/** A single day as a period. */
export const WHEN_DAY = /^\d{4}-\d\d-\d\d$/;

/** A period of time in ISO 8601; null without a limit. */
export interface Period {
  since: string | null;
  until: string | null;
}

/** Returns the period of an address, which `when` names, as in `today`, or `since` and `until` delimit. */
export function periodOf(query: URLSearchParams, now = Date.now()): Period {
  const when = query.get("when") ?? "";
  const today = Math.floor(now / DAY_MS) * DAY_MS;
  const iso = (time: number) => new Date(time).toISOString();
  if (when === "today") return { since: iso(today), until: null };
  if (when === "yesterday") return { since: iso(today - DAY_MS), until: iso(today) };
  if (when === "week") return { since: iso(today - 6 * DAY_MS), until: null };
  if (WHEN_DAY.test(when))
    return { since: iso(Date.parse(when)), until: iso(Date.parse(when) + DAY_MS) };
  return { since: query.get("since"), until: query.get("until") };
}

/** Converts the filters to parameters of the operation that lists deliveries. */
export function toApiQuery(query: URLSearchParams): URLSearchParams {
  const { when: _, unknown: __, since: ___, until: ____, ...others } = filtersOf(query);
  const given = Object.entries({ ...others, ...periodOf(query), cursor: query.get("cursor") });
  return new URLSearchParams(given.filter((pair): pair is [string, string] => !!pair[1]));
}
