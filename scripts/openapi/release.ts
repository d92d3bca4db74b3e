import { findChanges } from "./changes.ts";
import type { CommittedDocument } from "./history.ts";
import type { Part } from "./schemas.ts";

/**
 * Why `document` must not be published: within one version, nothing that was ever committed may
 * break, whatever else was committed, and CHANGELOG.md must name the version.
 */
export function findFaults(
  document: Part,
  committed: CommittedDocument[],
  changelog: string,
): string[] {
  const { version } = document.info;
  const faults: string[] = [];
  const known = new Set<string>();
  for (const { commit, document: earlier } of committed) {
    const { breaking, growing } = findChanges(earlier, document);
    for (const { name, value } of growing)
      if (!changelog.includes(`\`${value}\``))
        faults.push(`${name} has the new value \`${value}\`: announce it in CHANGELOG.md`);
    if (earlier.info.version !== version) continue;
    const news = breaking.filter((change) => !known.has(change));
    for (const change of news) known.add(change);
    if (news.length > 0)
      faults.push(
        [
          `this breaks clients of the document of commit ${commit}, which has the same version, ${version}:`,
          ...news.map((change) => `  ${change}`),
          "  Undo it, or move CONTRACT_VERSION in src/http/document/document.ts and say so in CHANGELOG.md.",
        ].join("\n"),
      );
  }
  if (!changelog.split("\n").some((line) => line.startsWith(`## [${version}]`)))
    faults.push(`CHANGELOG.md has no section "## [${version}]"`);
  return [...new Set(faults)];
}
