import { describe, expect, test } from "vitest";
import { openWorkspace, recordAutomation, refusal } from "../../support/api.ts";

const JSON_TYPE = { "Content-Type": "application/json" };
const UNSUPPORTED = refusal(415, "invalid_request", { reason: "unsupported_media_type" });
const UNREADABLE = refusal(400, "invalid_request", { reason: "invalid_json" });
const TOO_LARGE = refusal(413, "invalid_request", { reason: "body_too_large", max: 16_384 });

/** A workspace with an active automation, and a function that sends a PATCH with any body. */
async function openAutomation() {
  const { workspaceId, api } = await openWorkspace();
  const path = `/v1/automations/${await recordAutomation(workspaceId)}`;
  const patch = (body: BodyInit | null, headers: HeadersInit = JSON_TYPE) =>
    api.send<{ status?: string }>(path, { method: "PATCH", headers, body });
  return { api, path, patch };
}

function stream(...chunks: (string | Uint8Array)[]): ReadableStream<Uint8Array> {
  return new ReadableStream({
    start(controller) {
      for (const chunk of chunks)
        controller.enqueue(typeof chunk === "string" ? new TextEncoder().encode(chunk) : chunk);
      controller.close();
    },
  });
}

describe("the content type of a body", () => {
  test("is application/json, in any case and with any parameter", async () => {
    const { patch } = await openAutomation();
    const types = [
      "application/json",
      "application/json; charset=utf-8",
      "application/json;charset=UTF-8",
      "application/json ; charset=iso-8859-1",
      "Application/JSON",
    ];
    for (const type of types)
      expect((await patch('{"status":"active"}', { "Content-Type": type })).status, type).toBe(200);
  });

  test("is rejected with 415 if it is anything else, whatever the body", async () => {
    const { patch } = await openAutomation();
    const types = [
      "",
      "text/plain",
      "text/json",
      "application/x-www-form-urlencoded",
      "multipart/form-data; boundary=x",
      "application/jsonp",
      "application/json-patch+json",
      "application/merge-patch+json",
      "application/problem+json",
      "xapplication/json",
      "application/json, text/plain",
      "text/plain; application/json",
      "*/*",
    ];
    for (const type of types)
      expect(await patch('{"status":"active"}', { "Content-Type": type }), type).toEqual(
        UNSUPPORTED,
      );
  });

  test("is rejected with 415 if it is missing", async () => {
    const { patch } = await openAutomation();
    expect(await patch(new TextEncoder().encode('{"status":"active"}'), {})).toEqual(UNSUPPORTED);
    expect(await patch(null, {})).toEqual(UNSUPPORTED);
  });

  test("does not matter if no body is read", async () => {
    const { api } = await openAutomation();
    expect((await api.send("/v1/leads", { headers: { "Content-Type": "x/y" } })).status).toBe(200);
  });
});

describe("the size of a body", () => {
  const padded = (bytes: number) => '{"status":"active"}'.padEnd(bytes, " ");

  test("is at most 16 KiB, to the byte", async () => {
    const { patch } = await openAutomation();
    expect((await patch(padded(16_384))).status).toBe(200);
    expect(await patch(padded(16_385))).toEqual(TOO_LARGE);
    expect(await patch(padded(1_000_000))).toEqual(TOO_LARGE);
  });

  test("is counted in bytes, not in characters", async () => {
    const { patch } = await openAutomation();
    expect(await patch(JSON.stringify({ status: "é".repeat(8_200) }))).toEqual(TOO_LARGE);
  });

  test("is at most 16 KiB when it is chunked, without a length", async () => {
    const { patch } = await openAutomation();
    const kibibyte = " ".repeat(1_024);
    const full = Array.from({ length: 15 }, () => kibibyte);
    expect((await patch(stream(...full, padded(1_024)))).status).toBe(200);
    expect(await patch(stream(...full, padded(1_024), " "))).toEqual(TOO_LARGE);
  });

  test("of up to a mebibyte does not matter to a route that takes none: all of it is read", async () => {
    const { api } = await openAutomation();
    let chunks = 0;
    const body = new ReadableStream({
      pull(controller) {
        chunks++;
        if (chunks > 60) controller.close();
        else controller.enqueue(new Uint8Array(16_384).fill(32));
      },
    });
    const answer = await api.send("/v1/leads", { method: "POST", headers: JSON_TYPE, body });
    expect(answer).toEqual(refusal(404, "route_not_found"));
    expect(chunks).toBe(61);
  });

  test("that never comes does not hold up an answer that needs none", async () => {
    const { api } = await openAutomation();
    const startedAt = Date.now();
    const body = new ReadableStream();
    const answer = await api.send("/v1/leads", { method: "POST", headers: JSON_TYPE, body });
    expect(answer).toEqual(refusal(404, "route_not_found"));
    expect(Date.now() - startedAt).toBeLessThan(5_000);
  });

  test("is at most a mebibyte if it is read but not used", async () => {
    const { patch } = await openAutomation();
    let chunks = 0;
    const eightMebibytes = new ReadableStream({
      pull(controller) {
        chunks++;
        if (chunks > 512) controller.close();
        else controller.enqueue(new Uint8Array(16_384).fill(32));
      },
    });
    expect(await patch(eightMebibytes)).toEqual(TOO_LARGE);
    expect(chunks).toBeLessThan(80);
  });
});

describe("a body that is not JSON in UTF-8", () => {
  test.each([
    ["nothing", ""],
    ["spaces", "  \n"],
    ["half an object", '{"status":"active"'],
    ["two objects", '{"status":"active"}{}'],
    ["a trailing comma", '{"status":"active",}'],
    ["single quotes", "{'status':'active'}"],
    ["a form", "status=active"],
    ["NaN", "NaN"],
    ["a NUL", '{"status":"active"}\0'],
    ["a raw control character in a string", '{"status":"act\u0001ive"}'],
    ["endless brackets", "[".repeat(16_000)],
  ])("is rejected with 400: %s", async (_, body) => {
    const { patch } = await openAutomation();
    expect(await patch(body)).toEqual(UNREADABLE);
  });

  test("is rejected with 400: bytes that are not UTF-8", async () => {
    const { patch } = await openAutomation();
    const latin1 = [...'{"status":"'].map((character) => character.charCodeAt(0));
    for (const bytes of [[0xe9], [0xff, 0xfe], [0xc0, 0xaf], [0xed, 0xa0, 0x80]]) {
      const body = new Uint8Array([...latin1, ...bytes, 0x22, 0x7d]);
      expect(await patch(body)).toEqual(UNREADABLE);
    }
  });

  test("is rejected with 400: UTF-16", async () => {
    const { patch } = await openAutomation();
    const text = '\ufeff{"status":"active"}';
    const body = new Uint8Array(
      [...text].flatMap((c) => [c.charCodeAt(0) & 255, c.charCodeAt(0) >> 8]),
    );
    expect(await patch(body)).toEqual(UNREADABLE);
  });

  test("is rejected with 400: no body at all", async () => {
    const { patch } = await openAutomation();
    expect(await patch(null)).toEqual(UNREADABLE);
  });

  test("is accepted if a character is split between two chunks", async () => {
    const { patch } = await openAutomation();
    const bytes = new TextEncoder().encode('{"status":"é"}');
    const split = stream(bytes.slice(0, 12), bytes.slice(12));
    expect(await patch(split)).toEqual(
      refusal(400, "invalid_request", {
        parameter: "status",
        reason: "unknown_value",
        allowed: ["active", "paused"],
      }),
    );
  });
});

describe("a body of the wrong shape", () => {
  const wrongType = refusal(400, "invalid_request", { reason: "invalid_type" });
  const parameter = "status";
  const unknownValue = refusal(400, "invalid_request", {
    parameter,
    reason: "unknown_value",
    allowed: ["active", "paused"],
  });

  test.each([
    ["null", "null", wrongType],
    ["an array", "[]", wrongType],
    ["an array of bodies", '[{"status":"active"}]', wrongType],
    ["a number", "1", wrongType],
    ["a text", '"active"', wrongType],
    ["deep brackets", "[".repeat(8_000) + "]".repeat(8_000), wrongType],
    ["an empty object", "{}", refusal(400, "invalid_request", { parameter, reason: "required" })],
    [
      "null instead of a value",
      '{"status":null}',
      refusal(400, "invalid_request", { parameter, reason: "invalid_type" }),
    ],
    [
      "a number instead of a value",
      '{"status":1}',
      refusal(400, "invalid_request", { parameter, reason: "invalid_type" }),
    ],
    [
      "an array instead of a value",
      '{"status":["active"]}',
      refusal(400, "invalid_request", { parameter, reason: "invalid_type" }),
    ],
    ["an unknown value", '{"status":"error"}', unknownValue],
    ["a value in capitals", '{"status":"ACTIVE"}', unknownValue],
    [
      "an unknown property",
      '{"status":"active","name":"x"}',
      refusal(400, "invalid_request", { parameter: "name", reason: "unknown_property" }),
    ],
    [
      "a property named __proto__",
      '{"status":"active","__proto__":{}}',
      refusal(400, "invalid_request", { parameter: "__proto__", reason: "unknown_property" }),
    ],
  ])("is rejected with a 400 that names the problem: %s", async (_, body, expected) => {
    const { patch } = await openAutomation();
    expect(await patch(body)).toEqual(expected);
  });
});
