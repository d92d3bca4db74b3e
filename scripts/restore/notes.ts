import { existsSync, readFileSync, renameSync } from "node:fs";
import { writePrivateFile } from "../shared/private-file.ts";
import type { Placements } from "./placements.ts";
import type { PlatformCall } from "./repeat.ts";
import type { Tables } from "./tables.ts";

/** The notes of a restore, in a file that only its user can read. A run that continues does no step twice. */
export interface Notes {
  /** The bookmark of the database before the restore, which undoes it. */
  bookmark: string;
  /** The tables with the decisions of people, before the restore. */
  tables: Tables;
  /** Where workspaces live, as found when the database had gone back; null before. */
  placements: Placements | null;
  /** The calls that are still to be repeated; null until the rows have been put back. */
  calls: PlatformCall[] | null;
  finished: boolean;
}

/** Reads the notes of a restore that was begun; null if it was not. */
export function readNotes(file: string): Notes | null {
  return existsSync(file) ? JSON.parse(readFileSync(file, "utf8")) : null;
}

/** Replaces the notes atomically. */
export function writeNotes(file: string, notes: Notes): void {
  writePrivateFile(`${file}.new`, JSON.stringify(notes));
  renameSync(`${file}.new`, file);
}
