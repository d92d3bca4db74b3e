import { execFileSync } from "node:child_process";
import { findChanges, type Part } from "./changes.ts";

/** A past version of a document in the repository. */
export interface CommittedDocument {
  /** The short name of a commit that introduced it. */
  commit: string;
  document: Part;
}

/**
 * Reads every version of `file` that was ever committed on a branch that led to the current commit,
 * newest first.
 *
 * @throws Error if the history is not available or incomplete.
 */
export function readCommitted(root: string, file: string): CommittedDocument[] {
  const git = (...words: string[]) =>
    execFileSync("git", words, { cwd: root, encoding: "utf8", maxBuffer: 2 ** 28, stdio: "pipe" });
  let isShallow: string;
  try {
    isShallow = git("rev-parse", "--is-shallow-repository").trim();
  } catch {
    throw new Error("The history is not available: run this in a clone, with git installed.");
  }
  if (isShallow === "true")
    throw new Error(
      "This clone holds only the end of the history, so that earlier documents cannot be seen: run `git fetch --unshallow` (on GitHub Actions, check out with `fetch-depth: 0`).",
    );
  const all = ["--full-history", "-m", "--no-renames", "--diff-filter=AM", "--format=%h"];
  const commits = new Set(
    git("log", ...all, "--", file)
      .split("\n")
      .filter(Boolean),
  );
  return [...commits].map((commit) => ({
    commit,
    document: JSON.parse(git("show", `${commit}:${file}`)),
  }));
}

/**
 * Finds why `document` must not be published. Within one version, nothing that was ever committed may
 * change, whatever else was committed, and CHANGELOG.md must name the version.
 */
export function findFaults(
  document: Part,
  committed: CommittedDocument[],
  changelog: string,
): string[] {
  const { version } = document.info;
  const faults = new Set<string>();
  let isBroken = false;
  for (const { commit, document: earlier } of committed) {
    const { breaking, growing } = findChanges(earlier, document);
    for (const { name, value } of growing)
      if (!changelog.includes(`\`${value}\``))
        faults.add(`${name} has the new value \`${value}\`: announce it in CHANGELOG.md`);
    if (isBroken || breaking.length === 0 || earlier.info.version !== version) continue;
    // The newest faulty version is enough, because earlier ones have much the same faults.
    isBroken = true;
    faults.add(
      [
        `this changes the document of commit ${commit}, which has the same version, ${version}:`,
        ...breaking.map((change) => `  ${change}`),
        "  Undo it, or move CONTRACT_VERSION in src/contract/version.ts and say so in CHANGELOG.md.",
      ].join("\n"),
    );
  }
  if (!changelog.split("\n").some((line) => line.startsWith(`## [${version}]`)))
    faults.add(`CHANGELOG.md has no section "## [${version}]"`);
  return [...faults];
}
