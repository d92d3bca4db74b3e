import { printable } from "./terminal.ts";

/**
 * A plain object as a table for people: one line per field, lists below their names. A page of a list,
 * such as `{ items, nextCursor }`, has one row per item, below the names of its fields, and then what
 * else it has to tell. Programs should use JSON.
 */
export function toTable(value: object): string {
  const { items, ...others } = value as { items?: unknown };
  if (!Array.isArray(items)) return toFields(value);
  const told = Object.entries(others).filter(([, field]) => linesOf(field ?? []).length > 0);
  return [toRows(items), ...(told.length > 0 ? [toFields(Object.fromEntries(told))] : [])].join(
    "\n\n",
  );
}

function toFields(value: object): string {
  const fields = Object.entries(value);
  if (fields.length === 0) return "Done.";
  const width = Math.max(...fields.map(([name]) => name.length));
  return fields
    .map(([name, field]) => {
      const [first = "none", ...more] = linesOf(field);
      const indent = `\n${" ".repeat(width + 2)}`;
      return `${name.padEnd(width)}  ${[first, ...more].join(indent)}`;
    })
    .join("\n");
}

/** Items of the same kind in columns; items of several kinds as JSON, one per line. */
function toRows(items: object[]): string {
  const [first] = items;
  if (first === undefined) return "No items.";
  const names = Object.keys(first);
  if (items.some((item) => Object.keys(item).join() !== names.join()))
    return items.map((item) => JSON.stringify(item)).join("\n");
  return align([names, ...items.map((item) => Object.values(item).map(show))]).join("\n");
}

/** Lines with aligned cells; the last cell of a line is not padded. */
export function align(rows: string[][]): string[] {
  const widths = rows.reduce<number[]>(
    (max, cells) => cells.map((cell, i) => Math.max(max[i] ?? 0, cell.length)),
    [],
  );
  return rows.map((cells) =>
    cells
      .map((cell, i) => cell.padEnd(widths[i] ?? 0))
      .join("  ")
      .trimEnd(),
  );
}

function linesOf(field: unknown): string[] {
  return Array.isArray(field) ? field.map(show) : [show(field)];
}

/** A value in one line; an object within one as its fields that are not null. */
function show(value: unknown): string {
  if (value === null) return "none";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") return value.toLocaleString("en-US");
  if (typeof value !== "object") return printable(String(value));
  if (Array.isArray(value)) return value.map(show).join(", ") || "none";
  const fields = Object.entries(value).filter(([, field]) => field !== null);
  return fields.map(([name, field]) => `${show(name)} ${show(field)}`).join(", ") || "none";
}
