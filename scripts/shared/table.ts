import { printable } from "./terminal.ts";

/**
 * A plain object as a table for people: one line per field, lists below their names. A page of a list,
 * such as `{ items, nextCursor }`, has one row per item, below the names of its fields, and then what
 * else it has to tell. If a row is wider than the terminal, the fields of an item stand below each other.
 * Programs should use JSON.
 *
 * @param columns the width of the terminal.
 */
export function toTable(value: object, columns = Number.POSITIVE_INFINITY): string {
  const { items, ...others } = value as { items?: unknown };
  if (!Array.isArray(items)) return toFields(value, columns);
  const told = Object.entries(others).filter(([, field]) => linesOf(field ?? []).length > 0);
  const rows = toRows(items, columns);
  return [rows, ...(told.length > 0 ? [toFields(Object.fromEntries(told), columns)] : [])].join(
    "\n\n",
  );
}

function toFields(value: object, columns: number): string {
  const fields = Object.entries(value);
  if (fields.length === 0) return "Done.";
  const width = Math.max(...fields.map(([name]) => name.length));
  return fields
    .map(([name, field]) => {
      const lines = linesOf(field).flatMap((line) => wrap(line, columns - width - 2));
      const indent = `\n${" ".repeat(width + 2)}`;
      return `${name.padEnd(width)}  ${lines.length > 0 ? lines.join(indent) : "none"}`;
    })
    .join("\n");
}

/** Items of the same kind in columns, or below each other; items of several kinds as JSON, one per line. */
function toRows(items: object[], columns: number): string {
  const [first] = items;
  if (first === undefined) return "No items.";
  const names = Object.keys(first);
  if (items.some((item) => Object.keys(item).join() !== names.join()))
    return items.map((item) => JSON.stringify(item)).join("\n");
  const rows = align([names, ...items.map((item) => Object.values(item).map(show))]);
  if (rows.every(({ length }) => length <= columns)) return rows.join("\n");
  return items.map((item) => toFields(item, columns)).join("\n\n");
}

/** Breaks a line after a space, or anywhere in a long word. */
function wrap(line: string, columns: number): string[] {
  const width = Math.max(columns, 20);
  if (line.length <= width) return [line];
  const space = line.lastIndexOf(" ", width);
  const end = space > 0 ? space : width;
  return [line.slice(0, end), ...wrap(line.slice(end).trimStart(), columns)];
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
