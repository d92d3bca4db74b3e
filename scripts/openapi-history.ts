import { execFileSync } from "node:child_process";
import type { Part } from "./openapi-schemas.ts";

/** A document as it once stood in the repository. */
export interface CommittedDocument {
  /** The short name of the commit that brought it. */
  commit: string;
  document: Part;
}

/**
 * Every state in which `file` was ever committed, on whatever branch led to the present commit,
 * newest first.
 *
 * @param warn is told when the repository holds only the end of its history.
 */
export function readCommitted(
  root: string,
  file: string,
  warn: (sentence: string) => void = console.warn,
): CommittedDocument[] {
  const git = (...words: string[]) =>
    execFileSync("git", words, { cwd: root, encoding: "utf8", maxBuffer: 2 ** 28 });
  if (git("rev-parse", "--is-shallow-repository").trim() === "true")
    warn(
      "This clone holds only the end of the history, and earlier documents may be missing: run `git fetch --unshallow` (on GitHub Actions, check out with `fetch-depth: 0`).",
    );
  const all = ["--full-history", "-m", "--no-renames", "--raw", "--no-abbrev"];
  const lines = git("log", ...all, "--format=%h", "--", file).split("\n");
  const commits = new Map<string, string>();
  let commit = "";
  for (const line of lines) {
    // A change reads ":<modes> <blob before> <blob after> <kind>"; a deletion leaves no blob.
    const blob = /^:\d+ \d+ [0-9a-f]+ ([0-9a-f]+)/.exec(line)?.[1];
    if (!blob) commit = line || commit;
    else if (!/^0+$/.test(blob)) commits.set(blob, commit);
  }
  return [...commits].map(([blob, commit]) => ({
    commit: commit.slice(0, 8),
    document: JSON.parse(git("cat-file", "blob", blob)),
  }));
}
