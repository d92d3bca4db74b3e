import { expect, test } from "vitest";
import { decodeCursor, encodeCursor } from "../../../src/contract/cursor.ts";
import { toBase64Url } from "../../../src/primitives/bytes.ts";

const CURSOR = "WzEsImxlYWRzIiwxNzY3MjI1NjAwMDAwLCJsZWFfMSJd";

/** A cursor with arbitrary content. */
const forged = (text: string) => toBase64Url(new TextEncoder().encode(text));

test("a cursor restores the position it encodes, across deployments, for its own list only", () => {
  for (const at of [0, -1, 1, Number.MAX_SAFE_INTEGER])
    for (const id of ["lea_1", "", "é😀", "~~~???>>>"]) {
      expect(encodeCursor("leads", { at, id })).toMatch(/^[A-Za-z0-9_-]+$/);
      expect(decodeCursor("leads", encodeCursor("leads", { at, id }))).toEqual({ at, id });
    }
  const position = { at: 1_767_225_600_000, id: "lea_1" };
  expect(encodeCursor("leads", position)).toBe(CURSOR);
  expect(decodeCursor("leads", CURSOR)).toEqual(position);
  for (const list of ["runs", "lead", ""])
    expect(decodeCursor(list as "runs", CURSOR), list).toBeNull();
});

test.each([
  ["nothing", ""],
  ["no base64url", "!"],
  ["base64 padding", `${CURSOR.slice(0, -2)}==`],
  ["a line feed", `${CURSOR}\n`],
  ["one character less", CURSOR.slice(0, -1)],
  ["one character more", `${CURSOR}A`],
  ["non-canonical trailing bits", `${forged('[1,"leads",1,"a"]').slice(0, -1)}1`],
  ["no JSON", forged("leads")],
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
])("an unreadable cursor is rejected without an exception: %s", (_, cursor) => {
  expect(decodeCursor("leads", cursor)).toBeNull();
});
