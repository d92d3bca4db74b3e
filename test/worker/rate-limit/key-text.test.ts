import { expect, test, vi } from "vitest";
import { hashApiKey, isApiKey, mintApiKey } from "../../../src/rate-limit/key-text.ts";

const BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const PREFIX = "key_live_";
/** The bytes 0x40 to 0x5f. */
const SECRET = "old:QEFCQ0RFRkdISUpLTE1OT1BRUlNUVVZXWFlaW1xdXl8=";
const OTHER = `new:${btoa("n".repeat(32))}`;

test("a new API key is `key_live_` and 32 base62 characters", async () => {
  const keys = await Promise.all(Array.from({ length: 500 }, () => mintApiKey(SECRET)));
  for (const key of keys) {
    expect(key).toMatch(/^key_live_[0-9A-Za-z]{32}$/);
    expect([await isApiKey(SECRET, key), await isApiKey(OTHER, key)], key).toEqual([true, false]);
  }
  expect(new Set(keys).size).toBe(keys.length);
  const seen = new Set(keys.flatMap((key) => [...key.slice(PREFIX.length, PREFIX.length + 26)]));
  expect([...seen].sort().join("")).toBe(BASE62);
});

test("a new API key takes no random byte that would make eight of the characters likelier", async () => {
  const bytes = [61, 248, 255, 247];
  const _random = vi.spyOn(crypto, "getRandomValues").mockImplementation((into) => {
    (into as Uint8Array)[0] = bytes.shift() ?? 0;
    return into;
  });
  const key = await mintApiKey(SECRET);
  expect(key.slice(0, PREFIX.length + 26)).toBe(`${PREFIX}zz${"0".repeat(24)}`);
});

const KEY = "key_live_abcdefghijklmnopqrstuvwxyz1RZ6iK";
test.each<[isOurs: boolean, key: string]>([
  // Computed with Python's hmac: the first 6 bytes in base 62, the last 6 digits.
  [true, "key_live_00000000000000000000000000j6VAxQ"],
  [true, "key_live_Ab1Ab1Ab1Ab1Ab1Ab1Ab1Ab1AbAHwdMZ"],
  [true, KEY],
  // Keys that anyone could make with the CRC-32 that was used before.
  [false, "key_live_000000000000000000000000002kP5hx"],
  [false, "key_live_abcdefghijklmnopqrstuvwxyz0E33L4"],
  // Too short, too long, or with another prefix, but with a correct checksum.
  [false, "key_live_0000000000000000000000000rjRxgi"],
  [false, "key_live_000000000000000000000000000oMQLxh"],
  [false, "key_test_00000000000000000000000000Cb3ca7"],
  ...["", PREFIX, KEY.slice(0, -1), `${KEY}0`, `${KEY}\n`, ` ${KEY}`, KEY.replace(PREFIX, "")].map(
    (text): [boolean, string] => [false, text],
  ),
  [false, KEY.replace("a", "é")],
])("an API key ends with an HMAC-SHA256 of what precedes it: %s for %j", async (isOurs, key) => {
  expect(await isApiKey(SECRET, key)).toBe(isOurs);
});

test("The checksum of an API key is valid while the secret has the key that made it", async () => {
  const [before, after] = [await mintApiKey(SECRET), await mintApiKey(`${OTHER},${SECRET}`)];
  const goodUnder = (secret: string) =>
    Promise.all([before, after].map((key) => isApiKey(secret, key)));
  expect(await goodUnder(SECRET)).toEqual([true, false]);
  expect(await goodUnder(`${OTHER},${SECRET}`)).toEqual([true, true]);
  expect(await goodUnder(OTHER)).toEqual([false, true]);
});

test("an invalid secret makes and accepts no API key", async () => {
  const secret = "old:c2VjcmV0";
  const message = "API_KEY_CHECKSUM_KEYS: entry 1 is not id:base64 of 32 bytes";
  await expect(mintApiKey(secret)).rejects.toThrow(message);
  await expect(isApiKey(secret, `${PREFIX}${"0".repeat(32)}`)).rejects.toThrow(message);
});

// FIPS 180-2, appendix B.1.
test("a key is stored as its SHA-256 in hexadecimal", async () => {
  expect(await hashApiKey("abc")).toBe(
    "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
  );
});
