import { z } from "@hono/zod-openapi";
import { ID_PREFIXES, type IdKind } from "./ids.ts";
import { RECORDS_MAX } from "./limits.ts";
import { EARLIEST_TIME_MS, LATEST_TIME_MS } from "./time.ts";

/** The schema of an id in a response. Clients treat it as opaque, except for its prefix. */
export function idField(kind: IdKind, about: string) {
  const prefix = ID_PREFIXES[kind];
  return z.string().openapi({
    description: `${about} Opaque; starts with \`${prefix}\`.`,
    example: `${prefix}0q2m5x8c1v7b4n9k3j6h0g2f5`,
  });
}

const KINDS = z.registry<{ kind: IdKind }>();

/** The schema of an id in an input. It accepts any text, because an id that does not exist is unknown, not invalid. */
function id(kind: IdKind) {
  const text = z.string().max(100).register(KINDS, { kind });
  return text.meta({ title: "id", description: `${ID_PREFIXES[kind]}…` });
}

export const WorkspaceId = id("workspace");
export const AutomationId = id("automation");
export const LeadId = id("lead");
export const WebhookId = id("webhook");
export const EventId = id("event");
export const KeyId = id("key");
export const ReplayId = id("replay");

/** Returns the kind of the id, or ids, that a field holds; undefined if it holds something else. */
export function idKindOf(field: z.core.$ZodType): IdKind | undefined {
  if (field instanceof z.ZodOptional || field instanceof z.ZodNullable)
    return idKindOf(field.unwrap());
  return field instanceof z.ZodArray ? idKindOf(field.element) : KINDS.get(field)?.kind;
}

/** The schema of a time, as `isoTime` formats it. */
export function timeField(about: string) {
  return z.iso.datetime().openapi({
    description: `${about} ISO 8601, UTC, with the suffix \`Z\`.`,
    example: "2026-03-14T09:26:53.589Z",
  });
}

/** The schema of a time in an input: ISO 8601 with `Z` or an offset, parsed to Unix milliseconds. */
export const Instant = z.iso
  .datetime({ offset: true })
  .transform((value) => Date.parse(value))
  .refine(
    (ms) => ms >= EARLIEST_TIME_MS && ms <= LATEST_TIME_MS,
    "must be from 0001-01-02 to 9999-12-30, in UTC",
  );

/** A list of one or more items, up to the maximum of a call. */
export function several<T extends z.ZodType>(item: T, max = RECORDS_MAX) {
  return z.array(item).min(1).max(max);
}
