import { describe, expect, test } from "vitest";
import { invalid, openWorkspace, recordAutomation, refusal } from "../../support/api.ts";
import { shortenTimers } from "../../support/timers.ts";

const JSON_TYPE = { "Content-Type": "application/json" };
const BODY = '{"status":"active"}';
const UNSUPPORTED = refusal(415, "invalid_request", { reason: "unsupported_media_type" });
const UNREADABLE = refusal(400, "invalid_request", { reason: "invalid_json" });
const TOO_LARGE = refusal(413, "invalid_request", { reason: "body_too_large", max: 16_384 });
const WRONG_TYPE = refusal(400, "invalid_request", { reason: "invalid_type" });
const TOO_DEEP = refusal(400, "invalid_request", { reason: "out_of_range", max: 64 });
const TOO_MANY = refusal(400, "invalid_request", { reason: "out_of_range", max: 1_000 });
const UNKNOWN_VALUE = invalid("status", "unknown_value", { allowed: ["active", "paused"] });

const { workspaceId, api } = await openWorkspace();
const path = `/v1/automations/${await recordAutomation(workspaceId)}`;

const patch = (body: BodyInit | null, headers: HeadersInit = JSON_TYPE) =>
  api.send(path, { method: "PATCH", headers, body });
const post = (body: BodyInit) =>
  api.send("/v1/leads", { method: "POST", headers: JSON_TYPE, body });
const bytesOf = (text: string) => new TextEncoder().encode(text);

/** A body that is sent in pieces, and how many were asked for. */
function stream(pieces: Uint8Array[]) {
  const asked = { pieces: 0 };
  const body = new ReadableStream<Uint8Array>({
    pull(controller) {
      const piece = pieces[asked.pieces++];
      if (piece) controller.enqueue(piece);
      else controller.close();
    },
  });
  return { body, asked };
}

describe("the content type of a body", () => {
  test.each([
    ...["application/json", "application/json;charset=UTF-8", "Application/JSON"],
    "application/json \t; charset=iso-8859-1",
  ])("is application/json, in any case and with any parameter: %s", async (type) => {
    expect((await patch(BODY, { "Content-Type": type })).status).toBe(200);
  });

  test.each([
    ...["", "text/json", "application/jsonp", "xapplication/json", "text/plain; application/json"],
    ...["application/x-www-form-urlencoded", "application/merge-patch+json"],
    "application/json, text/plain",
  ])("is rejected with 415 if it is anything else: %j", async (type) => {
    expect(await patch(BODY, { "Content-Type": type })).toEqual(UNSUPPORTED);
  });

  test.each([bytesOf(BODY), null])("is rejected with 415 if it is missing: %j", async (body) => {
    expect(await patch(body, {})).toEqual(UNSUPPORTED);
  });

  test.each(["gzip", "br", "identity, gzip", "utf-8"])(
    "is rejected with 415 if it is coded: %s",
    async (coding) => {
      expect(await patch(BODY, { ...JSON_TYPE, "Content-Encoding": coding })).toEqual(UNSUPPORTED);
    },
  );

  test("may say that it is not", async () => {
    expect((await patch(BODY, { ...JSON_TYPE, "Content-Encoding": "Identity" })).status).toBe(200);
  });

  test("does not matter if no body is read", async () => {
    expect((await api.send("/v1/leads", { headers: { "Content-Type": "x/y" } })).status).toBe(200);
  });
});

describe("the size of a body", () => {
  const piecesOf = (count: number, bytes: number) => Array(count).fill(bytesOf(" ".repeat(bytes)));

  test("is at most 16 KiB, to the byte, also when it is chunked, without a length", async () => {
    expect((await patch(BODY.padEnd(16_384))).status).toBe(200);
    expect(await patch(BODY.padEnd(16_385))).toEqual(TOO_LARGE);
    expect(await patch(JSON.stringify({ status: "é".repeat(8_200) }))).toEqual(TOO_LARGE);
    const full = [...piecesOf(15, 1_024), bytesOf(BODY.padEnd(1_024))];
    expect((await patch(stream(full).body)).status).toBe(200);
    expect(await patch(stream([...full, bytesOf(" ")]).body)).toEqual(TOO_LARGE);
  });

  test("of up to a mebibyte does not matter to a route that takes none: all of it is read", async () => {
    const { body, asked } = stream(piecesOf(60, 16_384));
    expect(await post(body)).toEqual(refusal(404, "route_not_found"));
    expect(asked.pieces).toBe(61);
    shortenTimers(10_000);
    // One that never comes holds up the response for ten seconds.
    expect(await post(new ReadableStream())).toEqual(refusal(404, "route_not_found"));
  });

  test("is at most a mebibyte if it is read but not used", async () => {
    const { body, asked } = stream(piecesOf(512, 16_384));
    expect(await patch(body)).toEqual(TOO_LARGE);
    expect(asked.pieces).toBeGreaterThan(60);
    expect(asked.pieces).toBeLessThan(80);
  });

  test("of which the length is far too large is left unread", async () => {
    const { body, asked } = stream(piecesOf(2_048, 1_024));
    const headers = { ...JSON_TYPE, "Content-Length": String(2_048 * 1_024) };
    expect(await patch(body, headers)).toEqual(TOO_LARGE);
    // The runtime asks for the first ones by itself.
    expect(asked.pieces).toBeLessThan(5);
  });
});

describe("a body that is not JSON in UTF-8", () => {
  const within = (...bytes: number[]) =>
    new Uint8Array([...bytesOf('{"status":"'), ...bytes, ...bytesOf('"}')]);

  test.each<[string, BodyInit | null]>([
    ["no body at all", null],
    ["nothing", ""],
    ["half an object", BODY.slice(0, -1)],
    ["two objects", `${BODY}{}`],
    ["NaN", "NaN"],
    ["a NUL", `${BODY}\0`],
    ["a raw control character in a string", within(0x01)],
    ["UTF-16", Uint16Array.from(`\ufeff${BODY}`, (c) => c.charCodeAt(0))],
    ["Latin-1", within(0xe9)],
    ["an overlong encoding", within(0xc0, 0xaf)],
    ["an encoded surrogate", within(0xed, 0xa0, 0x80)],
  ])("is rejected with 400: %s", async (_, body) => {
    expect(await patch(body)).toEqual(UNREADABLE);
  });

  test("is accepted if it begins with a byte order mark (RFC 8259, 8.1)", async () => {
    expect((await patch(`\ufeff${BODY}`)).status).toBe(200);
  });

  test("is accepted if a character is split between two chunks", async () => {
    const bytes = bytesOf('{"status":"é"}');
    const split = stream([bytes.slice(0, 12), bytes.slice(12)]).body;
    expect(await patch(split)).toEqual(UNKNOWN_VALUE);
  });
});

test.each([
  ["null", WRONG_TYPE],
  [`[${BODY}]`, WRONG_TYPE],
  // Its nesting is measured before it is parsed.
  ["[".repeat(16_000), TOO_DEEP],
  ['{"a":'.repeat(65), TOO_DEEP],
  [`${"[".repeat(65)}1${"]".repeat(65)}`, TOO_DEEP],
  [`${"[".repeat(64)}1${"]".repeat(64)}`, WRONG_TYPE],
  [`["\\\\", "\\"${"[".repeat(65)}"]`, WRONG_TYPE],
  // So are its values, because each wrong one takes time.
  [`{"status":[${"0,".repeat(1_001)}0]}`, TOO_MANY],
  [`{"status":[${"0,".repeat(1_000)}0]}`, invalid("status", "invalid_type")],
  [`{"status":"${",".repeat(1_001)}"}`, UNKNOWN_VALUE],
  ['{"status":null}', invalid("status", "invalid_type")],
  ['{"status":"active","__proto__":{}}', invalid("__proto__", "unknown_property")],
])("a body of the wrong shape gets a 400 that names the problem: %.40s", async (body, expected) => {
  expect(await patch(body)).toEqual(expected);
});
