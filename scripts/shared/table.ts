/**
 * A plain object as a table for people: one line a field, lists below their names. For programs there
 * is JSON.
 */
export function toTable(value: object): string {
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

/** Lines whose cells stand below each other; the last cell of a line is not padded. */
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
  if (Array.isArray(field)) return field.map(show);
  return [show(field)];
}

function show(value: unknown): string {
  if (value === null) return "none";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") return value.toLocaleString("en-US");
  return typeof value === "string" ? value : JSON.stringify(value);
}
