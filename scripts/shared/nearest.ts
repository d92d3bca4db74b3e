/** Returns the name that a mistyped one most probably stands for; null if none is similar. */
export function nearest(typed: string, names: readonly string[]): string | null {
  const found = names
    .map((name) => ({ name, edits: countEdits(typed.toLowerCase(), name.toLowerCase()) }))
    .toSorted((a, b) => a.edits - b.edits)[0];
  // A third of a name may be wrong, or more than that is missing.
  if (found && found.edits <= Math.max(2, typed.length / 3)) return found.name;
  return names.find((name) => name.toLowerCase().includes(typed.toLowerCase())) ?? null;
}

/** Returns the Levenshtein distance of two texts: how many characters must be added, removed or replaced. */
function countEdits(a: string, b: string): number {
  let row = Array.from({ length: b.length + 1 }, (_, i) => i);
  for (const [i, letter] of [...a].entries()) {
    const next = [i + 1];
    for (const [j, other] of [...b].entries()) {
      const replaced = (row[j] ?? 0) + (letter === other ? 0 : 1);
      next.push(Math.min(replaced, (row[j + 1] ?? 0) + 1, (next[j] ?? 0) + 1));
    }
    row = next;
  }
  return row.at(-1) ?? 0;
}
