import { describe, expect, test } from "vitest";
import { hashApiKey, isApiKey, mintApiKey } from "../../src/gate/api-key.ts";

const BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const PREFIX = "key_live_";

describe("a new API key", () => {
  const keys = Array.from({ length: 500 }, mintApiKey);

  test("is `key_live_` and 32 characters of base62", () => {
    for (const key of keys) expect(key).toMatch(/^key_live_[0-9A-Za-z]{32}$/);
  });

  test("is one that we could have made", () => {
    for (const key of keys) expect(isApiKey(key), key).toBe(true);
  });

  test("is like no other, every character of the alphabet in every place of its random part", () => {
    expect(new Set(keys).size).toBe(keys.length);
    const seen = new Set(keys.flatMap((key) => [...key.slice(PREFIX.length, PREFIX.length + 26)]));
    expect([...seen].sort().join("")).toBe(BASE62);
  });
});

describe("the checksum of an API key", () => {
  // Computed with Python's zlib.crc32, written in base 62.
  test.each([
    "key_live_000000000000000000000000002kP5hx",
    "key_live_Ab1Ab1Ab1Ab1Ab1Ab1Ab1Ab1zZ1fm0SC",
    "key_live_abcdefghijklmnopqrstuvwxyz0E33L4",
  ])("is the CRC-32 of what precedes: %s", (key) => {
    expect(isApiKey(key)).toBe(true);
  });

  test("refuses every single mistyped character", () => {
    const key = mintApiKey();
    const accepted: string[] = [];
    for (let place = PREFIX.length; place < key.length; place++)
      for (const character of BASE62) {
        const typed = key.slice(0, place) + character + key.slice(place + 1);
        if (typed !== key && isApiKey(typed)) accepted.push(typed);
      }
    expect(accepted).toEqual([]);
  });

  test("refuses two neighbours that changed places", () => {
    const key = "key_live_abcdefghijklmnopqrstuvwxyz0E33L4";
    for (let place = PREFIX.length; place < key.length - 1; place++) {
      const [left = "", right = ""] = key.slice(place, place + 2);
      const typed = key.slice(0, place) + right + left + key.slice(place + 2);
      expect(isApiKey(typed), typed).toBe(typed === key);
    }
  });
});

describe("what has not the shape of an API key", () => {
  const key = "key_live_abcdefghijklmnopqrstuvwxyz0E33L4";

  test.each([
    "",
    "key_live_",
    // Too short, too long and of another family, but with the checksums that they should have.
    "key_live_00000000000000000000000000KgdWG",
    "key_live_00000000000000000000000000026sZ8T",
    "key_test_000000000000000000000000004FZQsy",
    key.slice(0, -1),
    `${key}0`,
    `${key}\n`,
    `\n${key}`,
    ` ${key}`,
    key.toUpperCase(),
    key.replace("live", "test"),
    key.replace("key_live_", ""),
    key.replace("a", "é"),
    key.replace("a", "-"),
    key.repeat(2),
    "k".repeat(100_000),
  ])("is refused: %j", (text) => {
    expect(isApiKey(key)).toBe(true);
    expect(isApiKey(text)).toBe(false);
  });
});

// FIPS 180-2, appendix B.1.
test("a key is stored as its SHA-256 in hexadecimal", async () => {
  expect(await hashApiKey("abc")).toBe(
    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
  );
});
