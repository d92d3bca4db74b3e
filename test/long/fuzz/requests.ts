import fc from "fast-check";
import { WebhookEvent } from "../../../src/contract/enumerations.ts";
import type { Operation } from "../../support/document.ts";

/** A request before it is sent; `path` is raw, without the origin. */
export interface Shot {
  method: string;
  path: string;
  headers: Record<string, string>;
  body: string | Uint8Array | null;
}

const METHODS = ["GET", "POST", "PATCH", "DELETE", "HEAD", "PUT", "OPTIONS", "PROPFIND"];

const junk = fc.oneof(
  fc.string({ unit: "binary", maxLength: 40 }),
  fc.string({ maxLength: 40 }),
  fc.constantFrom(
    ...["%00", "%ff", "%zz", "%", "%2f", "%2e%2e", "%20", "..", "null", "undefined"],
    ...["-1", "0", "101", "1.0", "+5", "0x10", "1e2", "٣", "[]", "{}"],
    ...["' OR 1=1 --", "\u0000", "💥", "a".repeat(3_000)],
  ),
);

/** Text for a URL: escaped, or as raw as the URL parser allows. */
const inPath = fc.oneof(
  junk.map((text) => encodeURIComponent(text.toWellFormed())),
  junk.map((text) => text.replace(/[^\x21-\x7e]|[?#]/g, "")),
);

/** One of several, of which this one is drawn `weight` times as often. */
const often = <T>(weight: number, arbitrary: fc.Arbitrary<T>) => ({ weight, arbitrary });

/** Valid and almost valid requests of these operations, for the given ids and cursors. */
export function shots(
  operations: Operation[],
  ids: string[],
  cursors: string[],
): fc.Arbitrary<Shot> {
  const id = fc.oneof(often(3, fc.constantFrom(...ids)), inPath);
  const meant = fc.oneof(
    ...operations.map(({ method, path, requestBody }) =>
      often(
        requestBody ? 8 : 1,
        id.map((id) => ({ method, path: path.replace(/\{\w+\}/, () => id) })),
      ),
    ),
  );
  const route = meant.map(({ path }) => path);
  const path = fc.oneof(
    often(8, route),
    fc.tuple(route, inPath).map(([path, end]) => `${path}/${end}`),
    inPath.map((text) => `/${text}`),
    inPath.map((text) => `/v1/${text}`),
  );
  const value = fc.oneof(
    fc.integer({ min: -2, max: 120 }).map(String),
    fc.constantFrom(...cursors, "", "null"),
    inPath,
  );
  const name = fc.oneof(often(6, fc.constantFrom("limit", "cursor")), inPath);
  const query = fc
    .array(
      fc.tuple(name, value).map((pair) => pair.join("=")),
      { maxLength: 3 },
    )
    .map((all) => (all.length > 0 ? `?${all.join("&")}` : ""));
  const any = fc.record({ method: fc.constantFrom(...METHODS), path });
  return fc
    .record({ target: fc.oneof(often(4, meant), any), query, headers: headers(), bodies: bodies() })
    .map(({ target: { method, path }, query, headers, bodies }) => ({
      method,
      path: path + query,
      headers,
      body: method === "GET" || method === "HEAD" ? null : (bodies[method] ?? bodies.ANY),
    }));
}

function headers(): fc.Arbitrary<Record<string, string>> {
  const latin = fc.string({ unit: fc.constantFrom(..."abcXYZ019 ,;=/*-_"), maxLength: 30 });
  const type = fc.oneof(
    often(4, fc.constant("application/json")),
    fc.constantFrom(
      ...["application/json; charset=utf-8", "APPLICATION/JSON", "application/jsonp"],
      ...["application/json;charset=latin1", "text/plain"],
      ...["application/x-www-form-urlencoded", "multipart/form-data; boundary=x"],
    ),
    latin,
  );
  return fc.record(
    {
      "Content-Type": type,
      Accept: latin,
      "If-None-Match": latin,
      Range: fc.constantFrom("bytes=0-1", "bytes=-1", "junk"),
      "X-HTTP-Method-Override": fc.constantFrom("DELETE", "GET"),
      "Accept-Language": latin,
    },
    { requiredKeys: ["Content-Type"] },
  );
}

/** A body for any method and, three times out of four, one for each method that takes one. */
function bodies(): fc.Arbitrary<{ [method: string]: Shot["body"]; ANY: Shot["body"] }> {
  const url = fc.oneof(
    fc.webUrl({ validSchemes: ["https"] }),
    fc.webUrl({ validSchemes: ["http", "ftp"] }),
    fc.ipV4().map((address) => `https://${address}/`),
    fc.ipV6().map((address) => `https://[${address}]/`),
    junk,
  );
  const kinds = fc.constantFrom(...WebhookEvent.options);
  const events = fc.array(fc.oneof(often(4, kinds), junk), { maxLength: 4 });
  const creation = fc.record(
    { url: fc.oneof(often(5, url), fc.jsonValue()), events },
    { requiredKeys: [] },
  );
  const statuses = fc.constantFrom("active", "paused", "draft", "error");
  const control = fc.record(
    { status: fc.oneof(often(5, statuses), fc.jsonValue()) },
    { requiredKeys: [] },
  );
  const extra = fc.dictionary(junk, fc.jsonValue(), { maxKeys: 2 });
  const POST = creation.map((value) => JSON.stringify(value));
  const PATCH = control.map((value) => JSON.stringify(value));
  const ANY = fc.oneof(
    often(3, POST),
    often(3, PATCH),
    fc
      .tuple(fc.oneof(creation, control), extra)
      .map((all) => JSON.stringify(Object.assign({}, ...all))),
    fc.json(),
    fc.string({ unit: "binary", maxLength: 60 }),
    fc.uint8Array({ maxLength: 60 }),
    often(
      5,
      fc.integer({ min: 16_000, max: 20_000 }).map((n) => `"${"a".repeat(n)}"`),
    ),
    fc.constant(null),
  );
  return fc.oneof(fc.record({ ANY }), often(3, fc.record({ ANY, POST, PATCH })));
}
