import { z } from "@hono/zod-openapi";
import { OPERATIONS } from "../../src/platform/operations.ts";

type JsonSchema = z.core.JSONSchema.BaseSchema;

/** The operations of the Platform API, by name. */
export const BY_NAME = Object.entries(OPERATIONS).toSorted(([a], [b]) => (a < b ? -1 : 1));

/** A field of an operation's input or output. */
export interface Field {
  /** Its name, and those of the objects that it is in. */
  path: string[];
  isRequired: boolean;
  type: string;
  isNullable: boolean;
  /** The description of the field, where its name does not suffice; "" if it does. */
  about: string;
}

/** The fields of an object's schema; those of a nested object follow it. */
export function fieldsOf(schema: z.ZodType, io: "input" | "output"): Field[] {
  return listFields(z.toJSONSchema(schema, { io, unrepresentable: "any" }), []);
}

function listFields(object: JsonSchema, within: string[]): Field[] {
  return Object.entries(object.properties ?? {}).flatMap(([name, written]) => {
    const field = presentOf(written as JsonSchema);
    const item = field.type === "array" ? presentOf(field.items as JsonSchema) : field;
    const path = [...within, name];
    return [
      {
        path,
        isRequired: object.required?.includes(name) === true,
        type: typeOf(field),
        isNullable: isNull(written as JsonSchema),
        about: aboutOf((written as JsonSchema).description ?? field.description),
      },
      ...listFields(item, path),
    ];
  });
}

/** The first paragraph of a description: the contract's enumerations list their values below it. */
function aboutOf(description = ""): string {
  return description.split("\n\n", 1)[0] ?? "";
}

function isNull({ type, anyOf = [] }: JsonSchema): boolean {
  return [type].flat().includes("null") || anyOf.some((each) => each.type === "null");
}

/** The schema of what a nullable field is otherwise. */
function presentOf(schema: JsonSchema): JsonSchema {
  return schema.anyOf?.find(({ type }) => type !== "null") ?? schema;
}

function typeOf(field: JsonSchema): string {
  if (field.title) return field.title;
  if (field.enum) return field.enum.join(" | ");
  if (field.anyOf) return field.anyOf.map((each) => typeOf(each as JsonSchema)).join(" | ");
  if (field.type === "array") {
    const items = presentOf(field.items as JsonSchema);
    const count =
      field.maxItems === undefined ? "" : ` of ${field.minItems ?? 0} to ${field.maxItems}`;
    return `array${count}${items.properties ? "" : `: ${typeOf(items)}`}`;
  }
  if (field.type === "integer") return integerType(field);
  if (field.format === "date-time") return "time, ISO 8601";
  if (field.format === "email") return "e-mail address";
  if (field.maxLength) return `${field.type}, up to ${field.maxLength} characters`;
  return String([field.type ?? "object"].flat()[0]);
}

function integerType({ minimum, maximum = Number.MAX_SAFE_INTEGER }: JsonSchema): string {
  return maximum === Number.MAX_SAFE_INTEGER ? "integer" : `integer, ${minimum} to ${maximum}`;
}
