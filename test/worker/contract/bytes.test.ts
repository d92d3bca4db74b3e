import { expect, test } from "vitest";
import {
  fromBase64,
  fromBase64Url,
  fromHex,
  toBase64,
  toBase64Url,
  toHex,
} from "../../../src/contract/bytes.ts";

const ALL = Uint8Array.from({ length: 256 }, (_, byte) => byte);

// RFC 4648, section 10.
test.each([
  ["", ""],
  ["f", "Zg=="],
  ["fo", "Zm8="],
  ["foo", "Zm9v"],
  ["foobar", "Zm9vYmFy"],
])("base64 of %j is %j", (text, base64) => {
  const bytes = new TextEncoder().encode(text);
  expect(toBase64(bytes)).toBe(base64);
  expect(fromBase64(base64)).toEqual(bytes);
  expect(toBase64Url(bytes)).toBe(base64.replaceAll("=", ""));
});

test("every byte survives base64 and base64url, which contains no +, / or =", () => {
  for (const bytes of [ALL, ALL.subarray(1), ALL.subarray(2)]) {
    expect(fromBase64(toBase64(bytes))).toEqual(bytes);
    expect(toBase64Url(bytes)).toMatch(/^[A-Za-z0-9_-]+$/);
    expect(fromBase64Url(toBase64Url(bytes))).toEqual(bytes);
  }
});

test("base64url is only accepted in its canonical form", () => {
  for (const text of ["Zg==", "Zh", "Z", "+/+/", " Zg", "Z g"])
    expect(() => fromBase64Url(text), text).toThrow();
});

test("hexadecimal is lower case, two digits per byte", () => {
  expect(toHex(new Uint8Array([0, 1, 0x7f, 0xff]))).toBe("00017fff");
  expect(fromHex(toHex(ALL))).toEqual(ALL);
  expect(fromHex(toHex(ALL).toUpperCase())).toEqual(ALL);
});
