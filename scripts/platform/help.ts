import { z } from "zod";
import { RECORDS_MAX } from "../../src/contract/limits.ts";
import { PLATFORM_INPUTS, type PlatformMethod } from "../../src/contract/platform.ts";
import { align } from "../shared/table.ts";
import { recordsField, takesLines } from "./record-lines.ts";
import { WORDS } from "./words.ts";

const USAGE = `npm run platform -- METHOD INPUT [--ndjson] [--workspace ID] [--json] [--remote]

Calls a method of the Platform door and shows its answer: as a table in a terminal, as JSON otherwise.

  INPUT            JSON in quotes, or a file that holds it, or - for standard input
  --json           as JSON in a terminal too
  --ndjson         of exportWorkspace: all pages, one item a line; of recordAutomations, recordLeads
                   and recordRuns: INPUT is a file, or -, with one record a line, as many as you like
  --workspace ID   the workspace of those records, with --ndjson
  --remote         of the deployed Worker instead of the local server
  METHOD --help    what the method takes, field by field, with examples
`;

type JsonSchema = z.core.JSONSchema.BaseSchema;

/** The help of the command: its methods, what each does and what each takes. */
export function describeMethods(): string {
  const methods = Object.keys(PLATFORM_INPUTS) as PlatformMethod[];
  const about = methods.map((method) =>
    [method, `  ${WORDS[method].about}`, ...fieldLines(method, false)].join("\n"),
  );
  return `${USAGE}\n${about.join("\n\n")}`;
}

/** The help of one method, with what each field means. */
export function describeMethod(method: PlatformMethod): string {
  const { about, examples } = WORDS[method];
  const command = `npm run platform -- ${method}`;
  const lines = examples.map(
    (input) => `  ${command} '${JSON.stringify(input, null, 1).replace(/\n\s*/g, " ")}'`,
  );
  return [
    `${command} INPUT [--json] [--remote]`,
    "",
    about,
    "",
    ...fieldLines(method, true),
    "",
    "INPUT is JSON in quotes, or a file that holds it, or - for standard input:",
    "",
    ...lines,
    ...linesHelp(method, command),
  ].join("\n");
}

/** How a method takes, or gives, one record a line. */
function linesHelp(method: PlatformMethod, command: string): string[] {
  if (method === "exportWorkspace")
    return [
      "",
      "With --ndjson, all pages, one item a line:",
      "",
      `  ${command} '{ "workspaceId": "wks_…" }' --ndjson > workspace.ndjson`,
    ];
  if (!takesLines(method)) return [];
  const file = `${recordsField(method)}.ndjson`;
  return [
    "",
    `With --ndjson, INPUT is a file, or -, with one record a line, as many as you like; they are recorded`,
    `${RECORDS_MAX} at a time:`,
    "",
    `  ${command} ${file} --ndjson --workspace wks_…`,
    `  gunzip -c ${file}.gz | ${command} - --ndjson --workspace wks_…`,
  ];
}

/** One line a field of a method's input: its name, its type and, on demand, what it means. */
function fieldLines(method: PlatformMethod, withMeaning: boolean): string[] {
  const shape = z.toJSONSchema(PLATFORM_INPUTS[method], { io: "input", unrepresentable: "any" });
  const rows = rowsOf(shape, shape.$defs ?? {}, WORDS[method].fields);
  if (rows.length === 0) return ["  takes nothing"];
  return align(rows.map((cells) => (withMeaning ? cells : cells.slice(0, 2))));
}

function rowsOf(
  object: JsonSchema,
  named: Record<string, JsonSchema>,
  meanings: Record<string, string | undefined>,
  within: readonly string[] = [],
): string[][] {
  return Object.entries(object.properties ?? {}).flatMap(([name, written]) => {
    const field = resolve(written as JsonSchema, named);
    const item = field.type === "array" ? resolve(field.items as JsonSchema, named) : field;
    const optional = object.required?.includes(name) ? "" : "?";
    const path = [...within, name];
    return [
      [
        `${"  ".repeat(path.length)}${name}${optional}`,
        typeOf(field, named),
        meanings[path.join(".")] ?? "",
      ],
      ...rowsOf(item, named, meanings, path),
    ];
  });
}

/** The schema itself, instead of a reference to it or of its being null. */
function resolve(schema: JsonSchema, named: Record<string, JsonSchema>): JsonSchema {
  if (schema.$ref) return resolve(named[schema.$ref.replace("#/$defs/", "")] ?? {}, named);
  const real = schema.anyOf?.find(({ type }) => type !== "null");
  return real ? resolve(real, named) : schema;
}

function typeOf(field: JsonSchema, named: Record<string, JsonSchema>): string {
  if (field.enum) return field.enum.join(" | ");
  if (field.type === "array") {
    const items = resolve(field.items as JsonSchema, named);
    const kind = items.properties ? "" : `: ${typeOf(items, named)}`;
    return `array of ${field.minItems ?? 0} to ${field.maxItems}${kind}`;
  }
  if (field.type === "integer") return `integer, ${field.minimum} to ${field.maximum}`;
  if (field.format === "date-time") return "date and time, ISO 8601";
  if (field.format === "email") return "e-mail address";
  if (field.maxLength) return `${field.type}, up to ${field.maxLength} characters`;
  return String(field.type ?? "object");
}
