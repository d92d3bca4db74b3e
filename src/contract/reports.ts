import { z } from "@hono/zod-openapi";
import {
  AutomationStatus,
  AutomationType,
  LeadSource,
  RunStatus,
  TriggerType,
} from "./enumerations.ts";
import { NESTING_MAX } from "./limits.ts";

/** Text that every store and client can hold: no NUL, no lone surrogate. */
function text(max: number) {
  return z.string().max(max).refine(isText, "must be well-formed text");
}

function isText(value: string): boolean {
  return value.isWellFormed() && !value.includes("\0");
}

/** A non-empty label. */
export const Name = text(1_000).min(1);
const Reference = text(512).min(1);
/** One of our ids. */
export const Id = z.string().max(100);

const FIRST_MS = Date.parse("0000-01-01T00:00:00.000Z");
const LAST_MS = Date.parse("9999-12-31T23:59:59.999Z");

/** ISO 8601 with `Z` or an offset, parsed to Unix milliseconds. */
export const Instant = z.iso
  .datetime({ offset: true })
  .transform((value) => Date.parse(value))
  .refine((ms) => ms >= FIRST_MS && ms <= LAST_MS, "must be in the years 0000 to 9999, in UTC");

/** What is wrong with a value, and where. */
interface Fault {
  path: (string | number)[];
  message: string;
}

/**
 * The first part of a value that a store or client could not hold unchanged; null if there is none.
 */
function findFault(value: unknown, path: Fault["path"] = []): Fault | null {
  const fault = (message: string) => ({ path, message });
  if (value === null || typeof value === "boolean") return null;
  if (typeof value === "string") return isText(value) ? null : fault("must be well-formed text");
  if (typeof value === "number" && Number.isFinite(value))
    return Number.isInteger(value) && !Number.isSafeInteger(value) ? fault(UNSAFE) : null;
  if (!Array.isArray(value) && !isPlainObject(value)) return fault("must be JSON");
  if (path.length >= NESTING_MAX) return fault(`must be nested at most ${NESTING_MAX} deep`);
  if (!Object.keys(value).every(isText)) return fault("must have names of well-formed text");
  const items = Array.isArray(value) ? value.entries() : Object.entries(value);
  for (const [key, item] of items) {
    const found = findFault(item, [...path, key]);
    if (found) return found;
  }
  return null;
}

// Larger integers were already rounded when the JSON was parsed.
const UNSAFE = `must be between ${Number.MIN_SAFE_INTEGER} and ${Number.MAX_SAFE_INTEGER}; write it as text`;

function isPlainObject(value: unknown): value is Record<string, unknown> {
  return Object.prototype.toString.call(value) === "[object Object]";
}

const CustomFields = z
  .custom<Record<string, unknown>>(isPlainObject, "must be a JSON object")
  .superRefine((fields, context) => {
    const fault = findFault(fields);
    if (fault) context.addIssue({ code: "custom", continue: false, ...fault });
  });

const Agent = z.strictObject({ reference: Reference, name: Name });

/** An automation as the platform reports it. */
export const AutomationReport = z
  .strictObject({
    reference: Reference,
    type: AutomationType,
    provider: Name,
    agent: Agent,
    name: Name.nullish(),
    status: AutomationStatus,
    updatedAt: Instant.nullish(),
  })
  .refine(({ type, name }) => type !== "crm_source" || name, {
    path: ["name"],
    message: "required for a crm_source automation",
  });

/** A lead as the platform reports it. */
export const LeadReport = z.strictObject({
  reference: Reference,
  source: LeadSource,
  agent: Agent,
  name: text(1_000).nullish(),
  email: text(1_000).nullish(),
  phone: text(100).nullish(),
  customFields: CustomFields.nullish(),
  createdAt: Instant.nullish(),
});

/** A finished run as the platform reports it. */
export const RunReport = z.strictObject({
  reference: Reference,
  automationId: Id,
  status: RunStatus,
  triggerType: TriggerType,
  occurredAt: Instant.nullish(),
  actions: z
    .array(z.strictObject({ type: text(200).optional(), status: text(200).optional() }))
    .max(100)
    .nullish(),
  leadId: Id.nullish(),
});
