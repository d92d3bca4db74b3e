import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterEach, beforeEach, expect, test } from "vitest";
import type { Part } from "../../../scripts/openapi/changes.ts";
import { findFaults, readCommitted } from "../../../scripts/openapi/release.ts";
import { ROOT } from "../../../scripts/shared/checkout.ts";

const committed: Part = JSON.parse(readFileSync(join(ROOT, "openapi.json"), "utf8"));
type Change = (document: Part) => unknown;
const schema = (document: Part, name: string): Part => document.components.schemas[name];

const NEXT = committed.info.version.replace(/\d+$/, (last: string) => String(Number(last) + 1));

const CHANGELOG = `# Changelog\n\n## [${committed.info.version}] - 2026-11-21\n`;

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "openapi-"));
  git("init", "--quiet", "--initial-branch=main");
  git("commit", "--quiet", "--allow-empty", "--message=Begin");
});
afterEach(() => rmSync(folder, { recursive: true }));

function git(...words: string[]): void {
  const identity = ["-c", "user.name=Test", "-c", "user.email=test@example.com"];
  execFileSync("git", [...identity, ...words], { cwd: folder });
}

/** Commits the document as modified by `change`, and returns it. */
function commit(change: Change = () => {}, document = structuredClone(committed)): Part {
  change(document);
  writeFileSync(join(folder, "openapi.json"), JSON.stringify(document));
  git("add", ".");
  git("commit", "--quiet", "--message=Change the document");
  return document;
}

function faultsOf(document: Part, changelog = CHANGELOG): string[] {
  return findFaults(document, readCommitted(folder, "openapi.json"), changelog);
}

const addColour: Change = (document) => {
  schema(document, "Lead").properties.colour = { type: "string" };
};
const COLOUR_GONE = [
  expect.stringContaining("GET /v1/leads 200 content.data[].colour: it is gone"),
];
const removeLeads: Change = (document) => delete document.paths["/v1/leads"];

test("A document may only grow within a version, even if its removals are committed", () => {
  expect(faultsOf(committed)).toEqual([]);
  commit();
  const document = structuredClone(committed);
  addColour(document);
  expect(faultsOf(document)).toEqual([]);
  commit(addColour);
  expect(faultsOf(commit())).toEqual(COLOUR_GONE);
  expect(faultsOf(commit(removeLeads))[0]).toMatch(
    /^this changes the document of commit [0-9a-f]+, .*\n {2}GET \/v1\/leads: it is gone\n/,
  );
});

test("what a merged branch had published also counts", () => {
  commit();
  git("checkout", "--quiet", "-b", "branch");
  commit(addColour);
  git("checkout", "--quiet", "main");
  writeFileSync(join(folder, "other"), "");
  git("add", ".");
  git("commit", "--quiet", "--message=Something else");
  // The merge keeps its first parent's file, so nothing in it shows the branch.
  git("merge", "--quiet", "--strategy=ours", "--no-edit", "branch");
  expect(faultsOf(committed)).toEqual(COLOUR_GONE);
});

test("a breaking document with another version has no fault once the changelog names it", () => {
  commit();
  const document = commit((document) => {
    removeLeads(document);
    document.info.version = NEXT;
  });
  expect(faultsOf(document)).toEqual([`CHANGELOG.md has no section "## [${NEXT}]"`]);
  expect(faultsOf(document, `${CHANGELOG}\n## [${NEXT}] - 2026-12-01\n`)).toEqual([]);
});

test("a new type of automation must be announced in the changelog, whatever the version", () => {
  const withoutCrm: Change = (document) => schema(document, "AutomationType").enum.pop();
  commit(withoutCrm);
  commit((document) => {
    withoutCrm(document);
    document.info.version = "1.0.0-draft.1";
  });
  expect(faultsOf(committed)).toEqual([
    "AutomationType has the new value `crm_source`: announce it in CHANGELOG.md",
  ]);
  expect(faultsOf(committed, `${CHANGELOG}- \`crm_source\``)).toEqual([]);
});

test("a clone without its whole history is rejected, and so is a folder without any", () => {
  commit();
  commit(removeLeads);
  const clone = join(folder, "clone");
  git("clone", "--quiet", "--depth=1", pathToFileURL(folder).href, clone);
  expect(() => readCommitted(clone, "openapi.json")).toThrow("git fetch --unshallow");
  rmSync(join(folder, ".git"), { recursive: true });
  expect(() => readCommitted(folder, "openapi.json")).toThrow("The history is not available");
});
