import { describe, expect, test } from "vitest";
import { open, parseEncryptionKeys, seal } from "../../../src/encryption/seal.ts";
import { mintSecret } from "../../../src/endpoints/signature.ts";

/** The base64 of 32 equal bytes. */
const keyOf = (byte: number) => btoa(String.fromCharCode(byte).repeat(32));

const SECRET = mintSecret();
const OLD = `old:${keyOf(1)}`;
/** Its base64 has the characters that are neither letters nor digits. */
const NEW = `new_2-b:${keyOf(0xfb)}`;

describe("a sealed secret", () => {
  const ring = parseEncryptionKeys(OLD);

  test("contains nothing of the secret in plain text, and is different each time", async () => {
    const [first, second] = [await seal(ring, "whk_1", SECRET), await seal(ring, "whk_1", SECRET)];
    expect(first).toMatch(/^old\.[A-Za-z0-9+/]+=*$/);
    expect(first).not.toBe(second);
    const bytes = atob(first.split(".")[1] ?? "");
    expect(bytes).not.toContain(SECRET.slice(0, 10));
    expect(bytes).toHaveLength(12 + SECRET.length + 16);
  });

  test("can be decrypted for its own subscription, unchanged, with its key only", async () => {
    const sealed = await seal(ring, "whk_1", SECRET);
    expect(await open(ring, "whk_1", sealed)).toBe(SECRET);
    const impostor = parseEncryptionKeys(`old:${keyOf(3)}`);
    const changed = ["A", "B"].map((letter) => `old.${letter}${sealed.slice(5)}`);
    for (const [keys, owner, text] of [
      [ring, "whk_2", sealed],
      [ring, "", sealed],
      [impostor, "whk_1", sealed],
      [ring, "whk_1", changed.find((other) => other !== sealed)],
    ] as const)
      await expect(open(keys, owner, text ?? "")).rejects.toThrow();
    await expect(open(parseEncryptionKeys(NEW), "whk_1", sealed)).rejects.toThrow(/\bold\b/);
  });
});

describe("ENCRYPTION_KEYS", () => {
  test("may have spaces around its entries", () => {
    const ring = parseEncryptionKeys(` ${NEW} , ${OLD}\n`);
    expect([...ring.keys()]).toEqual(["new_2-b", "old"]);
    expect([...(ring.get("old") ?? [])]).toEqual(Array(32).fill(1));
  });

  const key = keyOf(7);
  const bare = key.replace("=", "");
  test.each<[why: string, text: string, entry: number]>([
    ["is empty", "", 1],
    ["lacks an id", key, 1],
    ["has an id with a space", `a b:${key}`, 1],
    ["lacks a key", "old", 1],
    ["ends with a comma", `${OLD},`, 2],
    ["has an invalid second entry", `${OLD},new=${key}`, 2],
    ["has a key that is not base64", `old:${key.slice(0, 20)}*${key.slice(20)}`, 1],
    ["has a truncated key", `${NEW},old:${key.slice(0, 41)}`, 2],
    ["has a key of 31 bytes", `old:${btoa("k".repeat(31))}`, 1],
    ["has a key of 33 bytes", `old:${btoa("k".repeat(33))}`, 1],
    ["has an id twice", `${OLD},old:${key}`, 2],
    ["has key and id swapped", `${key}:old`, 1],
    ["has them swapped, and the key without its padding", `${bare}:olds`, 1],
  ])("that %s is rejected, and the message says where, without the key", (_, text, entry) => {
    const parse = () => parseEncryptionKeys(text);
    expect(parse).toThrow(`ENCRYPTION_KEYS: entry ${entry}`);
    for (const secret of [bare, key.slice(0, 20), btoa("k".repeat(31)).slice(0, 20)])
      expect(parse).not.toThrow(secret);
  });
});
