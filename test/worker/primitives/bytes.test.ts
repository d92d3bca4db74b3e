import { expect, test } from "vitest";
import * as bytes from "../../../src/primitives/bytes.ts";

const ALL = Uint8Array.from({ length: 256 }, (_, byte) => byte);

// RFC 4648, section 10.
test.each([
  ["", ""],
  ["f", "Zg=="],
  ["fo", "Zm8="],
  ["foobar", "Zm9vYmFy"],
])("base64 of %j is %j", (text, base64) => {
  const plain = new TextEncoder().encode(text);
  expect(bytes.toBase64(plain)).toBe(base64);
  expect(bytes.fromBase64(base64)).toEqual(plain);
  expect(bytes.toBase64Url(plain)).toBe(base64.replaceAll("=", ""));
});

test("every byte survives base64, base64url and hexadecimal", () => {
  for (const some of [ALL, ALL.subarray(1), ALL.subarray(2)]) {
    expect(bytes.fromBase64(bytes.toBase64(some))).toEqual(some);
    expect(bytes.toBase64Url(some)).toMatch(/^[A-Za-z0-9_-]+$/);
    expect(bytes.fromBase64Url(bytes.toBase64Url(some))).toEqual(some);
    expect(bytes.toHex(some)).toBe(Buffer.from(some).toString("hex"));
    expect(bytes.fromHex(bytes.toHex(some))).toEqual(some);
    expect(bytes.fromHex(bytes.toHex(some).toUpperCase())).toEqual(some);
  }
});

test("base64url is only accepted in its canonical form", () => {
  for (const text of ["Zg==", "Zh", "Z", "+/+/", " Zg", "Z g"])
    expect(() => bytes.fromBase64Url(text), text).toThrow();
});

test("bytes are equal if all are, and there are as many", () => {
  expect(bytes.isEqual(ALL, ALL.slice())).toBe(true);
  const other = ALL.with(255, 0);
  for (const one of [other, ALL.subarray(0, 255), ALL.subarray(0, 0)])
    expect([bytes.isEqual(one, ALL), bytes.isEqual(ALL, one)]).toEqual([false, false]);
});
