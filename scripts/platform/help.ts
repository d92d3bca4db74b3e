import type { z } from "@hono/zod-openapi";
import { RECORDS_MAX } from "../../src/contract/limits.ts";
import type { Operation } from "../../src/platform/operation.ts";
import { align } from "../shared/table.ts";
import { BY_NAME, fieldsOf } from "./fields.ts";
import { PRINTED, printsLines } from "./long-calls.ts";
import { FIELDS, takesLines } from "./record-lines.ts";

const USAGE = `npm run platform -- METHOD INPUT [--ndjson] [--workspace ID] [--json] [--remote | --env NAME]

Calls a method of the Platform API and prints its output, as a table in a terminal and otherwise as JSON.

  INPUT            JSON in quotes, or a file that contains it, or - for standard input
  --json           print JSON in a terminal too
  --ndjson         with exportWorkspace, listAuditTrail and listWorkspaces: print all pages, one item per
                   line; with recordAutomations, recordLeads and recordRuns: INPUT is a file, or -, with
                   one record per line, any number of them
  --workspace ID   with --ndjson: the workspace to record into
  --actor NAME     who calls, for the audit trail; default: the user of this machine
  --remote         call the deployed Worker instead of the local server
  --env NAME       call the Worker that was deployed with --env NAME
  METHOD --help    show the method's input, field by field, with examples
`;

/** The command's help: all methods, with what each does and its input. */
export function describeMethods(): string {
  const about = BY_NAME.map(([name, { about, input }]) =>
    [name, `  ${about}`, ...fieldLines(input, false)].join("\n"),
  );
  return `${USAGE}\n${about.join("\n\n")}`;
}

/** The help for one method, with the meaning of each field. */
export function describeMethod(name: string, { about, input, examples }: Operation): string {
  const command = `npm run platform -- ${name}`;
  const lines = examples.map((example) => `  ${toCommand(name, example)}`);
  return [
    `${command} INPUT [--json] [--remote | --env NAME]`,
    "",
    about,
    "",
    ...fieldLines(input, true),
    "",
    "INPUT is JSON in quotes, or a file that contains it, or - for standard input:",
    "",
    ...lines,
    ...linesHelp(name, command),
  ].join("\n");
}

/** The command that calls a method with an input, on one line. */
export function toCommand(name: string, input: unknown): string {
  return `npm run platform -- ${name} '${JSON.stringify(input, null, 1).replace(/\n\s*/g, " ")}'`;
}

/** How a method reads or prints one record per line. */
function linesHelp(method: string, command: string): string[] {
  if (printsLines(method))
    return [
      "",
      "With --ndjson, all pages, one item per line:",
      "",
      // Without `-s`, npm writes lines of its own into the file.
      `  ${command.replace("npm run", "npm run -s")} ${PRINTED[method]}`,
    ];
  if (!takesLines(method)) return [];
  const file = `${FIELDS[method]}.ndjson`;
  return [
    "",
    `With --ndjson, INPUT is a file, or -, with one record per line, any number of them; they are recorded`,
    `${RECORDS_MAX} at a time:`,
    "",
    `  ${command} ${file} --ndjson --workspace wks_…`,
    `  gunzip -c ${file}.gz | ${command} - --ndjson --workspace wks_…`,
  ];
}

/** A line per field of an input: its name, its type and, if wanted, its meaning. */
function fieldLines(input: z.ZodType, withMeaning: boolean): string[] {
  const rows = fieldsOf(input, "input").map(({ path, isRequired, type, isNullable, about }) => {
    const name = `${"  ".repeat(path.length)}${path.at(-1)}${isRequired ? "" : "?"}`;
    const values = isRequired && isNullable ? `${type}, or null` : type;
    return withMeaning ? [name, values, about] : [name, values];
  });
  return rows.length === 0 ? ["  no input"] : align(rows);
}
