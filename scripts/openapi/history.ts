import { execFileSync } from "node:child_process";
import type { Part } from "./schemas.ts";

/** A past version of a document in the repository. */
export interface CommittedDocument {
  /** The short name of the commit that introduced it. */
  commit: string;
  document: Part;
}

/**
 * Every version of `file` that was ever committed, on any branch that led to the current commit,
 * newest first.
 *
 * @throws Error if the history is not available or incomplete.
 */
export function readCommitted(root: string, file: string): CommittedDocument[] {
  const git = (...words: string[]) =>
    execFileSync("git", words, { cwd: root, encoding: "utf8", maxBuffer: 2 ** 28, stdio: "pipe" });
  if (isShallow(git))
    throw new Error(
      "This clone holds only the end of the history, so that earlier documents cannot be seen: run `git fetch --unshallow` (on GitHub Actions, check out with `fetch-depth: 0`).",
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

function isShallow(git: (...words: string[]) => string): boolean {
  try {
    return git("rev-parse", "--is-shallow-repository").trim() === "true";
  } catch {
    throw new Error("The history is not available: run this in a clone, with git installed.");
  }
}
