import { z } from "@hono/zod-openapi";
import { RECORDS_MAX } from "../../src/contract/limits.ts";
import { PLATFORM_INPUTS, type PlatformMethod } from "../../src/contract/platform.ts";
import { align } from "../shared/table.ts";
import { recordsField, takesLines } from "./record-lines.ts";
import { WORDS } from "./words.ts";

const USAGE = `npm run platform -- METHOD INPUT [--ndjson] [--workspace ID] [--json] [--remote]

Calls a method of the Platform door and prints its answer: as a table in a terminal, else as JSON.

  INPUT            JSON in quotes, or a file that contains it, or - for standard input
  --json           print JSON in a terminal too
  --ndjson         with exportWorkspace: print all pages, one item per line; with recordAutomations,
                   recordLeads and recordRuns: INPUT is a file, or -, with one record per line, any
                   number of them
  --workspace ID   with --ndjson: the workspace to record into
  --remote         call the deployed Worker instead of the local server
  METHOD --help    show the method's input, field by field, with examples
`;

type JsonSchema = z.core.JSONSchema.BaseSchema;

/** The command's help: all methods, with what each does and its input. */
export function describeMethods(): string {
  const methods = Object.keys(PLATFORM_INPUTS) as PlatformMethod[];
  const about = methods.map((method) =>
    [method, `  ${WORDS[method].about}`, ...fieldLines(method, false)].join("\n"),
  );
  return `${USAGE}\n${about.join("\n\n")}`;
}

/** The help for one method, with the meaning of each field. */
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
    "INPUT is JSON in quotes, or a file that contains it, or - for standard input:",
    "",
    ...lines,
    ...linesHelp(method, command),
  ].join("\n");
}

/** How a method reads or prints one record per line. */
function linesHelp(method: PlatformMethod, command: string): string[] {
  if (method === "exportWorkspace")
    return [
      "",
      "With --ndjson, all pages, one item per line:",
      "",
      // Without `-s`, npm writes lines of its own into the file.
      `  ${command.replace("npm run", "npm run -s")} '{ "workspaceId": "wks_…" }' --ndjson > workspace.ndjson`,
    ];
  if (!takesLines(method)) return [];
  const file = `${recordsField(method)}.ndjson`;
  return [
    "",
    `With --ndjson, INPUT is a file, or -, with one record per line, any number of them; they are recorded`,
    `${RECORDS_MAX} at a time:`,
    "",
    `  ${command} ${file} --ndjson --workspace wks_…`,
    `  gunzip -c ${file}.gz | ${command} - --ndjson --workspace wks_…`,
  ];
}

/** A line per field of a method's input: its name, its type and, if wanted, its meaning. */
function fieldLines(method: PlatformMethod, withMeaning: boolean): string[] {
  const shape = z.toJSONSchema(PLATFORM_INPUTS[method], { io: "input", unrepresentable: "any" });
  const rows = rowsOf(shape, shape.$defs ?? {}, WORDS[method].fields);
  if (rows.length === 0) return ["  no input"];
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

/** The schema behind a reference or a nullable schema. */
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
