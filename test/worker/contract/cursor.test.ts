import { describe, expect, test } from "vitest";
import { toBase64Url } from "../../../src/contract/bytes.ts";
import { decodeCursor, encodeCursor } from "../../../src/contract/cursor.ts";

const POSITION = { at: 1_767_225_600_000, id: "lea_1" };
const CURSOR = "WzEsImxlYWRzIiwxNzY3MjI1NjAwMDAwLCJsZWFfMSJd";

/** A cursor with arbitrary content. */
function forged(text: string): string {
  return toBase64Url(new TextEncoder().encode(text));
}

describe("a cursor", () => {
  test("restores the position it encodes", () => {
    for (const at of [0, -1, 1, Number.MAX_SAFE_INTEGER])
      for (const id of ["lea_1", "", "é😀"])
        expect(decodeCursor("leads", encodeCursor("leads", { at, id }))).toEqual({ at, id });
  });

  test("stays valid across deployments", () => {
    expect(encodeCursor("leads", POSITION)).toBe(CURSOR);
    expect(decodeCursor("leads", CURSOR)).toEqual(POSITION);
  });

  test("can be used in a URL unescaped", () => {
    for (let at = 0; at < 300; at++)
      expect(encodeCursor("runs", { at, id: "~~~???>>>" })).toMatch(/^[A-Za-z0-9_-]+$/);
  });

  test("is only valid for its own list", () => {
    expect(decodeCursor("runs", CURSOR)).toBeNull();
    expect(decodeCursor("lead" as never, CURSOR)).toBeNull();
    expect(decodeCursor("" as never, CURSOR)).toBeNull();
  });
});

describe("an unreadable cursor", () => {
  test.each([
    ["nothing", ""],
    ["no base64url", "!"],
    ["base64 padding", `${CURSOR.slice(0, -2)}==`],
    ["a line feed", `${CURSOR}\n`],
    ["one character less", CURSOR.slice(0, -1)],
    ["one character more", `${CURSOR}A`],
    ["non-canonical trailing bits", `${forged('[1,"leads",1,"a"]').slice(0, -1)}1`],
    ["no JSON", forged("leads")],
    ["no UTF-8", toBase64Url(new Uint8Array([0xff, 0xfe]))],
    // [1,"leads",1,"…"] with the byte 0xff as its id.
    ["no UTF-8 in the id", "WzEsImxlYWRzIiwxLCL_Il0"],
    ["no array", forged('{"0":1,"1":"leads","2":1,"3":"lea_1"}')],
    ["another version", forged('[2,"leads",1,"lea_1"]')],
    ["a fraction", forged('[1,"leads",1.5,"lea_1"]')],
    ["an unsafe integer", forged('[1,"leads",9007199254740993,"lea_1"]')],
    ["no instant", forged('[1,"leads",null,"lea_1"]')],
    ["an id that is not a string", forged('[1,"leads",1,2]')],
    ["no id", forged('[1,"leads",1]')],
    ["something more", forged('[1,"leads",1,"lea_1",0]')],
    ["more than 512 characters", forged(`[1,"leads",1,"${"a".repeat(400)}"]`)],
  ])("is rejected without an exception: %s", (_, cursor) => {
    expect(decodeCursor("leads", cursor)).toBeNull();
  });
});
