import type { WebhookEvent } from "../../src/contract/enumerations.ts";
import { REDELIVERY_MAX_AGE_MS } from "../../src/contract/limits.ts";
import { HOUR_MS } from "../../src/contract/time.ts";

/*
 * The filters of a list of deliveries in the address of the page. Days are those of the reader's time zone.
 */

const NAMES = [
  "state",
  "type",
  "status",
  "when",
  "since",
  "until",
  "webhookId",
  "eventId",
  "leadId",
  "lead",
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

/** A period of time in ISO 8601; null without a limit. */
export interface Period {
  since: string | null;
  until: string | null;
}

/** Returns the period of an address, which `when` names, as in `today`, or `since` and `until` delimit. */
export function periodOf(query: URLSearchParams, now = Date.now()): Period {
  const when = query.get("when") ?? "";
  const today = startOfDay(now);
  if (when === "today") return { since: today, until: null };
  if (when === "yesterday") return { since: startOfDay(now, -1), until: today };
  if (when === "week") return { since: startOfDay(now, -6), until: null };
  return { since: query.get("since"), until: query.get("until") };
}

/** Returns when a day began in the reader's time zone: that of a time, or so many days later. A day may have 23 hours. */
export function startOfDay(time: number, laterDays = 0): string {
  const date = new Date(time);
  const day = date.getDate() + laterDays;
  return new Date(date.getFullYear(), date.getMonth(), day).toISOString();
}

/** Converts the filters to parameters of the operation that lists deliveries. */
export function toApiQuery(query: URLSearchParams): URLSearchParams {
  const { when: _, since: __, until: ___, ...others } = filtersOf(query);
  const given = Object.entries({ ...others, ...periodOf(query), cursor: query.get("cursor") });
  return new URLSearchParams(given.filter((pair): pair is [string, string] => !!pair[1]));
}

/** Returns the filter for what a reader has typed to find: an id, or what describes a lead. */
export function toFind(text: string): Partial<Record<Name, string>> {
  const name = ({ evt_: "eventId", lea_: "leadId" } as const)[text.slice(0, 4)] ?? "lead";
  return text === "" ? {} : { [name]: text };
}

/** Returns what a reader has typed to find, from an address. */
export function foundBy(query: URLSearchParams): string {
  return query.get("eventId") ?? query.get("leadId") ?? query.get("lead") ?? "";
}

/**
 * Returns the events that a list with these filters shows. They end now at the latest, and begin where events can still
 * be sent again; an hour of tolerance, because clocks differ.
 */
export function rangeOf(query: URLSearchParams, states: string[], now = Date.now()) {
  const { since, until } = periodOf(query, now);
  const oldest = new Date(now - REDELIVERY_MAX_AGE_MS + HOUR_MS).toISOString();
  return {
    since: since === null || since < oldest ? oldest : since,
    until: until ?? new Date(now).toISOString(),
    states,
    type: query.get("type") as WebhookEvent | null,
    status: query.get("status"),
  };
}
