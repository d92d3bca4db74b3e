import { describe, expect, test, vi } from "vitest";
import { hashApiKey, isApiKey, mintApiKey } from "../../../src/quota/api-key.ts";

const BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const PREFIX = "key_live_";
/** The bytes 0x40 to 0x5f. */
const SECRET = "old:QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl8=";
const OTHER = `new:${btoa("n".repeat(32))}`;

describe("a new API key", () => {
  const minting = Promise.all(Array.from({ length: 500 }, () => mintApiKey(SECRET)));

  test("is `key_live_` and 32 base62 characters, unique, any of them in its random part", async () => {
    const keys = await minting;
    for (const key of keys) expect(key).toMatch(/^key_live_[0-9A-Za-z]{32}$/);
    expect(new Set(keys).size).toBe(keys.length);
    const seen = new Set(keys.flatMap((key) => [...key.slice(PREFIX.length, PREFIX.length + 26)]));
    expect([...seen].sort().join("")).toBe(BASE62);
  });

  test("is accepted as ours, and not by anyone who has our code but not our secret", async () => {
    for (const key of await minting)
      expect([await isApiKey(SECRET, key), await isApiKey(OTHER, key)], key).toEqual([true, false]);
  });

  test("takes no random byte that would make eight of the characters likelier", async () => {
    const bytes = [61, 248, 255, 247];
    const random = vi.spyOn(crypto, "getRandomValues").mockImplementation((into) => {
      (into as Uint8Array)[0] = bytes.shift() ?? 0;
      return into;
    });
    const key = await mintApiKey(SECRET);
    random.mockRestore();
    expect(key.slice(0, PREFIX.length + 26)).toBe(`${PREFIX}zz${"0".repeat(24)}`);
  });
});

describe("the checksum of an API key", () => {
  test.each([
    // Computed with Python's hmac: the first 6 bytes in base 62, the last 6 digits.
    ["key_live_00000000000000000000000000j6VAxQ", true],
    ["key_live_Ab1Ab1Ab1Ab1Ab1Ab1Ab1Ab1AbAHwdMZ", true],
    ["key_live_abcdefghijklmnopqrstuvwxyz1RZ6iK", true],
    // Keys that anyone could make with the CRC-32 that was used before.
    ["key_live_000000000000000000000000002kP5hx", false],
    ["key_live_abcdefghijklmnopqrstuvwxyz0E33L4", false],
  ])("is an HMAC-SHA256 of what precedes it: %s is %s", async (key, isOurs) => {
    expect(await isApiKey(SECRET, key)).toBe(isOurs);
  });

  test("is made with the secret's first key, and valid as long as its key is in the secret", async () => {
    const [before, after] = [await mintApiKey(SECRET), await mintApiKey(`${OTHER},${SECRET}`)];
    const goodUnder = (secret: string) =>
      Promise.all([before, after].map((key) => isApiKey(secret, key)));
    expect(await goodUnder(SECRET)).toEqual([true, false]);
    expect(await goodUnder(`${OTHER},${SECRET}`)).toEqual([true, true]);
    expect(await goodUnder(OTHER)).toEqual([false, true]);
  });

  test("rejects every single mistyped character", async () => {
    const key = await mintApiKey(SECRET);
    const accepted: string[] = [];
    for (let place = PREFIX.length; place < key.length; place++)
      for (const character of BASE62) {
        const typed = key.slice(0, place) + character + key.slice(place + 1);
        if (typed !== key && (await isApiKey(SECRET, typed))) accepted.push(typed);
      }
    expect(accepted).toEqual([]);
  });

  test("cannot be computed from an invalid secret, and the error does not quote it", async () => {
    const secret = "old:c2VjcmV0";
    const message = "API_KEY_CHECKSUM_KEYS: entry 1 is not id:base64 of 32 bytes";
    await expect(mintApiKey(secret)).rejects.toThrow(message);
    await expect(isApiKey(secret, `${PREFIX}${"0".repeat(32)}`)).rejects.toThrow(message);
  });
});

describe("what does not have the shape of an API key", () => {
  const key = "key_live_abcdefghijklmnopqrstuvwxyz1RZ6iK";

  test.each([
    ...["", PREFIX, key.slice(0, -1), `${key}0`, `${key}\n`, ` ${key}`, key.replace(PREFIX, "")],
    ...[key.replace("a", "é"), "k".repeat(100_000)],
    // Too short, too long, or with another prefix, but with a correct checksum.
    "key_live_0000000000000000000000000rjRxgi",
    "key_live_000000000000000000000000000oMQLxh",
    "key_test_00000000000000000000000000Cb3ca7",
  ])("is rejected: %j", async (text) => {
    expect(await isApiKey(SECRET, key)).toBe(true);
    expect(await isApiKey(SECRET, text)).toBe(false);
  });
});

// FIPS 180-2, appendix B.1.
test("a key is stored as its SHA-256 in hexadecimal", async () => {
  expect(await hashApiKey("abc")).toBe(
    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
  );
});
