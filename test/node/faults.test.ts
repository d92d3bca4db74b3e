import { readdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join } from "node:path";
import { expect, test } from "vitest";
import { FAULTS } from "../faults/faults.ts";

const SRC = join(import.meta.dirname, "../../src");

test("each planted fault replaces a text that occurs once in its file", () => {
  const counts = FAULTS.map(({ file, text }) => {
    const count = readFileSync(join(SRC, file), "utf8").split(text).length - 1;
    return count === 1 ? null : `${file}: ${count} times: ${text}`;
  });
  expect(counts.filter(Boolean)).toEqual([]);
});

test("each planted fault changes something, and no two are the same", () => {
  const edits = FAULTS.map(({ file, text, replacement }) => `${file}: ${text} → ${replacement}`);
  expect(new Set(edits).size).toBe(edits.length);
  expect(FAULTS.filter(({ text, replacement }) => text === replacement)).toEqual([]);
});

test("each folder of the sources has planted faults", () => {
  const folders = readdirSync(SRC, { recursive: true, encoding: "utf8" }).filter((path) =>
    statSync(join(SRC, path)).isDirectory(),
  );
  const covered = new Set(FAULTS.map(({ file }) => dirname(file)));
  expect(folders.filter((folder) => !covered.has(folder))).toEqual([]);
});
