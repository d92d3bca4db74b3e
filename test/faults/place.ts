import type { Fault } from "./fault.ts";

/** Where a fault is planted. */
export interface Place {
  /** Below `src`. */
  file: string;
  start: number;
  end: number;
  replacement: string;
}

/** How many names may differ from those in the table. With more, another place might be taken for it. */
const RENAMED_MAX = 2;

/** Words of the languages: no name in the code can take their place. */
const KEYWORDS = new Set(
  "await async return throw if else for of in const let new null undefined true false typeof import from function class extends".split(
    " ",
  ),
);
const NAME = /[A-Za-z_$][\w$]*/g;

/**
 * Finds the one place that a fault is about, in its file or, if it was moved, in another one. What was renamed or
 * formatted since is found, too: its replacement then has the new names.
 *
 * @param sources the files below `src`, with their texts.
 * @returns the place, or how many there are instead of one.
 */
export function findPlace(fault: Fault, sources: ReadonlyMap<string, string>): Place | number {
  const own = sources.get(fault.file);
  const ownPlaces = own === undefined ? [] : findIn(fault, fault.file, own);
  const places =
    ownPlaces.length > 0
      ? ownPlaces
      : [...sources].flatMap(([file, source]) => findIn(fault, file, source));
  const [place, ...others] = places;
  return place && others.length === 0 ? place : places.length;
}

function findIn({ text, replacement }: Fault, file: string, source: string): Place[] {
  const exact = [];
  for (let start = source.indexOf(text); start >= 0; start = source.indexOf(text, start + 1))
    exact.push({ file, start, end: start + text.length, replacement });
  if (exact.length > 0) return exact;
  const { pattern, names } = patternOf(text);
  const places: (Place & { renamed: number })[] = [];
  for (const found of source.matchAll(pattern)) {
    const now = new Map(names.map((name, i) => [name, found[i + 1] ?? name]));
    const renamed = names.filter((name) => now.get(name) !== name);
    if (renamed.length > RENAMED_MAX) continue;
    const { index: start, 0: all } = found;
    const current = replacement.replaceAll(NAME, (name) => now.get(name) ?? name);
    const end = start + all.length;
    places.push({ file, start, end, replacement: current, renamed: renamed.length });
  }
  const fewest = Math.min(...places.map(({ renamed }) => renamed));
  return places.filter(({ renamed }) => renamed === fewest);
}

/** Matches a text in which names and space may differ. Each name is a group, and is the same everywhere. */
function patternOf(text: string): { pattern: RegExp; names: string[] } {
  const names: string[] = [];
  const parts = text.match(/[A-Za-z_$][\w$]*|\s+|[^\sA-Za-z_$]/g) ?? [];
  const sources = parts.map((part) => {
    if (/^\s/.test(part)) return "";
    if (!/^[A-Za-z_$]/.test(part)) return part.replace(/[\\^$.*+?()[\]{}|/-]/, "\\$&");
    if (KEYWORDS.has(part) || /^[A-Z]+$/.test(part)) return `\\b${part}\\b`;
    const known = names.indexOf(part);
    if (known >= 0) return `\\${known + 1}\\b`;
    names.push(part);
    return "([A-Za-z_$][\\w$]*)";
  });
  const pattern = new RegExp(sources.filter(Boolean).join("\\s*"), "g");
  return { pattern, names };
}
