import fc from "fast-check";

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

/** Valid and almost valid requests for the given ids and cursors. */
export function shots(ids: string[], cursors: string[]): fc.Arbitrary<Shot> {
  const id = fc.oneof(
    { weight: 3, arbitrary: fc.constantFrom(...ids) },
    { weight: 1, arbitrary: inPath },
  );
  const route = fc.oneof(
    fc.constantFrom("/v1/automations", "/v1/leads", "/v1/runs", "/v1/webhooks"),
    id.map((id) => `/v1/automations/${id}`),
    id.map((id) => `/v1/automations/${id}/runs`),
    id.map((id) => `/v1/webhooks/${id}`),
  );
  const path = fc.oneof(
    { weight: 8, arbitrary: route },
    { weight: 1, arbitrary: fc.tuple(route, inPath).map(([path, end]) => `${path}/${end}`) },
    { weight: 1, arbitrary: inPath.map((text) => `/${text}`) },
    { weight: 1, arbitrary: inPath.map((text) => `/v1/${text}`) },
  );
  const value = fc.oneof(
    fc.integer({ min: -2, max: 120 }).map(String),
    fc.constantFrom(...cursors, "", "null"),
    inPath,
  );
  const parameter = fc.tuple(
    fc.oneof({ weight: 6, arbitrary: fc.constantFrom("limit", "cursor") }, inPath),
    value,
  );
  const query = fc
    .array(parameter, { maxLength: 3 })
    .map((all) =>
      all.length > 0 ? `?${all.map(([name, text]) => `${name}=${text}`).join("&")}` : "",
    );
  const meant = fc.oneof(
    fc
      .constantFrom("/v1/automations", "/v1/leads", "/v1/runs", "/v1/webhooks")
      .map((path) => ({ method: "GET", path })),
    id.map((id) => ({ method: "GET", path: `/v1/automations/${id}` })),
    id.map((id) => ({ method: "GET", path: `/v1/automations/${id}/runs` })),
    { weight: 3, arbitrary: id.map((id) => ({ method: "PATCH", path: `/v1/automations/${id}` })) },
    { weight: 3, arbitrary: fc.constant({ method: "POST", path: "/v1/webhooks" }) },
    id.map((id) => ({ method: "DELETE", path: `/v1/webhooks/${id}` })),
  );
  const target = fc.oneof(
    { weight: 4, arbitrary: meant },
    { weight: 1, arbitrary: fc.record({ method: fc.constantFrom(...METHODS), path }) },
  );
  return fc
    .record({ target, query, headers: headers(), bodies: bodies() })
    .map(({ target: { method, path }, query, headers, bodies }) => ({
      method,
      path: path + query,
      headers,
      body: method === "GET" || method === "HEAD" ? null : (bodies[method] ?? bodies.ANY),
    }));
}

function headers(): fc.Arbitrary<Record<string, string>> {
  const latin = fc.string({ unit: fc.constantFrom(..."abcXYZ019 ,;=/*-_"), maxLength: 30 });
  return fc.record(
    {
      "Content-Type": fc.oneof(
        { weight: 4, arbitrary: fc.constant("application/json") },
        fc.constantFrom(
          ...["application/json; charset=utf-8", "APPLICATION/JSON", "application/jsonp"],
          ...["application/json;charset=latin1", "text/plain"],
          ...["application/x-www-form-urlencoded", "multipart/form-data; boundary=x"],
        ),
        latin,
      ),
      Accept: latin,
      "If-None-Match": latin,
      Range: fc.constantFrom("bytes=0-1", "bytes=-1", "junk"),
      "X-HTTP-Method-Override": fc.constantFrom("DELETE", "GET"),
      "Accept-Language": latin,
    },
    { requiredKeys: ["Content-Type"] },
  );
}

/** A body for any method and, half of the time, one for each method that takes one. */
function bodies(): fc.Arbitrary<{ [method: string]: Shot["body"]; ANY: Shot["body"] }> {
  const url = fc.oneof(
    fc.webUrl({ validSchemes: ["https"] }),
    fc.webUrl({ validSchemes: ["http", "ftp"] }),
    fc.ipV4().map((address) => `https://${address}/`),
    fc.ipV6().map((address) => `https://[${address}]/`),
    junk,
  );
  const kind = fc.oneof(
    {
      weight: 4,
      arbitrary: fc.constantFrom("lead.created", "run.completed", "automation.status_changed"),
    },
    junk,
  );
  const creation = fc.record(
    {
      url: fc.oneof({ weight: 5, arbitrary: url }, fc.jsonValue()),
      events: fc.array(kind, { maxLength: 4 }),
    },
    { requiredKeys: [] },
  );
  const control = fc.record(
    {
      status: fc.oneof(
        { weight: 3, arbitrary: fc.constantFrom("active", "paused", "draft", "error") },
        fc.jsonValue(),
      ),
    },
    { requiredKeys: [] },
  );
  const extra = fc.tuple(
    fc.oneof(creation, control),
    fc.dictionary(junk, fc.jsonValue(), { maxKeys: 2 }),
  );
  const POST = creation.map((value) => JSON.stringify(value));
  const PATCH = control.map((value) => JSON.stringify(value));
  const ANY = fc.oneof(
    { weight: 3, arbitrary: POST },
    { weight: 3, arbitrary: PATCH },
    { weight: 1, arbitrary: extra.map((parts) => JSON.stringify(Object.assign({}, ...parts))) },
    { weight: 1, arbitrary: fc.json() },
    { weight: 1, arbitrary: fc.string({ unit: "binary", maxLength: 60 }) },
    { weight: 1, arbitrary: fc.uint8Array({ maxLength: 60 }) },
    {
      weight: 1,
      arbitrary: fc.integer({ min: 16_000, max: 20_000 }).map((n) => `"${"a".repeat(n)}"`),
    },
    fc.constant(null),
  );
  return fc.oneof(fc.record({ ANY }), fc.record({ ANY, POST, PATCH }));
}
