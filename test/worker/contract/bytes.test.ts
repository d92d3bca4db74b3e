import { expect, test } from "vitest";
import { fromBase64Url, toBase64Url } from "../../../src/contract/bytes.ts";

const ALL = Uint8Array.from({ length: 256 }, (_, byte) => byte);

test("every byte comes back from base64url, which has neither + nor / nor =", () => {
  for (const bytes of [ALL, ALL.subarray(1), ALL.subarray(2)]) {
    expect(toBase64Url(bytes)).toMatch(/^[A-Za-z0-9_-]+$/);
    expect(fromBase64Url(toBase64Url(bytes))).toEqual(bytes);
  }
});

test("base64url is read in its one canonical form only", () => {
  for (const text of ["Zg==", "Zh", "Z", "+/+/", " Zg", "Z g"])
    expect(() => fromBase64Url(text), text).toThrow();
});
