import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { parseEnv } from "node:util";
import { afterAll, expect, test, vi } from "vitest";
import { completeSecrets } from "../../scripts/deploy/secret.ts";
import { writeNotes } from "../../scripts/restore/restoration.ts";
import { writeServer } from "../../scripts/shared/local-state.ts";

const folder = mkdtempSync(join(tmpdir(), "private-"));
afterAll(() => rmSync(folder, { recursive: true }));

test.each<[what: string, write: (file: string) => unknown, written?: string]>([
  ["the server", (file) => writeServer({ base: "http://localhost", platformKey: "k" }, file)],
  [
    "public-api.secrets.txt",
    () => completeSecrets("public-api", ["ENCRYPTION_KEYS"], { HOME: folder }),
  ],
  ["the notes of a restore", (file) => writeNotes(file, {} as never), ".new"],
])(
  "only this user can read a file with %s, even if all could before",
  (what, write, suffix = "") => {
    vi.spyOn(process.stdout, "write").mockReturnValue(true);
    const file = join(folder, what);
    writeFileSync(`${file}${suffix}`, "", { mode: 0o644 });
    write(file);
    expect(readFileSync(file, "utf8")).not.toBe("");
    expect(statSync(file).mode & 0o777).toBe(0o600);
  },
);

test.each([
  ["without an end", ""],
  ["with an end", "\n"],
])("a secret is added to a copy whose last line is %s", (_, end) => {
  vi.spyOn(process.stdout, "write").mockReturnValue(true);
  const copy = join(folder, "public-api.secrets.txt");
  const key = `k1:${Buffer.alloc(32).toString("base64")}`;
  writeFileSync(copy, `ENCRYPTION_KEYS=${key}${end}`);
  const names = ["ENCRYPTION_KEYS", "PORTAL_SIGNING_KEYS"] as const;
  const secrets = completeSecrets("public-api", [...names], { HOME: folder });
  expect(secrets.ENCRYPTION_KEYS).toBe(key);
  const text = readFileSync(copy, "utf8");
  expect(parseEnv(text)).toEqual(secrets);
  expect(text.split("\n")).toHaveLength(3);
});
