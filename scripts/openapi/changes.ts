/** A part of an OpenAPI document, used untyped. */
// biome-ignore lint/suspicious/noExplicitAny: documents are compared by shape, whatever they hold
export type Part = Record<string, any>;

/** The changes for a client from one OpenAPI document to another. */
export interface Changes {
  /** The changes that are forbidden within a version, in one sentence each, with their places. */
  breaking: string[];
  /** New values of enumerations that may grow, once announced. */
  growing: { name: string; value: string }[];
}

/**
 * Enumerations whose new values are announced and break nobody: a new channel adds a type of
 * automation (CHANGELOG.md), a reason only adds detail to its error code, and a subscription gets only the
 * event types that it lists.
 */
const GROWING = ["AutomationType", "ErrorReason", "WebhookEvent"];

/** The keywords whose text is for people. */
const PROSE = /^(x-.*|title|summary|description|tags|deprecated|examples?|\$comment)$/;
const METHODS = /^(get|put|post|delete|options|head|patch|trace)$/;
const REQUIRED = "required";
const VALUE = /^value "(.*)"$/;
const DEFAULT = /^default /;
/** Whether an enumeration that may grow says so: any other string is valid, too. */
const OPEN = "open";

/** Something that a document names: an operation, a parameter, a body, a status, a header, a field. */
interface Thing {
  /** The facts that the document states about it, such as `type "string"`. */
  facts: Set<string>;
  /** Whether clients send it; otherwise they receive it. */
  isSent: boolean;
  /** Its place within the nearest named schema: a change there is reported once. */
  key: string;
  /** The enumeration that its values are from, if it may grow. */
  growing: string | undefined;
}

/**
 * Compares two OpenAPI 3.1 documents by one rule: within a version, a document only grows. Things may
 * be added, unless clients must send them; what was there stays, and so does each fact about it, even
 * one whose change would suit clients. Clients may also be allowed to send more values, and be told what
 * is assumed if they send none; a list that may grow may be opened.
 *
 * No npm library finds as much: `openapi-diff` does not support OpenAPI 3.1; `api-smart-diff` misses
 * webhooks and error codes, and reports a new response field as breaking. `oasdiff` and
 * `openapi-changes` are binaries that npm does not install.
 */
export function findChanges(before: Part, after: Part): Changes {
  const breaking = new Map<string, string>();
  const growing = new Map<string, Changes["growing"][number]>();
  const breaks = (at: string, key: string, what: string) => {
    if (!breaking.has(key + what)) breaking.set(key + what, `${at}: ${what}`);
  };
  const [was, is] = [thingsIn(before), thingsIn(after)];
  // Without what is inside a thing that is gone, or new.
  const [gone, added] = [partsMissingIn(is, was), partsMissingIn(was, is)];
  for (const at of gone) breaks(at, was.get(at)?.key ?? at, "it is gone");
  for (const [at, { facts, isSent, key, growing: list }] of is) {
    const known = was.get(at)?.facts;
    const isMissing = added.includes(at) && isSent && facts.has(REQUIRED);
    if (isMissing) breaks(at, key, `now ${REQUIRED}`);
    if (!known) continue;
    const mayGrow = isSent && [...known].some((fact) => VALUE.test(fact));
    for (const fact of known) if (!facts.has(fact)) breaks(at, key, `no longer ${fact}`);
    for (const fact of facts) {
      const [, value] = VALUE.exec(fact) ?? [];
      if (known.has(fact)) continue;
      if (
        fact === OPEN ||
        (isSent && DEFAULT.test(fact) && ![...known].some((one) => DEFAULT.test(one)))
      )
        continue;
      if (value !== undefined && list) growing.set(fact, { name: list, value });
      else if (value === undefined || !mayGrow) breaks(at, key, `now ${fact}`);
    }
  }
  return { breaking: [...breaking.values()], growing: [...growing.values()] };
}

/** Where the things are that one document lacks, but not what is in them. */
function partsMissingIn(one: Map<string, Thing>, other: Map<string, Thing>): string[] {
  const missing: string[] = [];
  for (const at of other.keys()) {
    const isIn = (whole: string) => at.startsWith(whole) && /^[ .[(]/.test(at.slice(whole.length));
    if (!one.has(at) && !missing.some(isIn)) missing.push(at);
  }
  return missing;
}

/** All things in a document by where they are; what is in a thing follows it. */
function thingsIn(document: Part): Map<string, Thing> {
  const things = new Map<string, Thing>();
  for (const { url } of document.servers ?? []) add(`server ${url}`, false, []);
  for (const [path, item] of Object.entries<Part>(document.paths ?? {}))
    for (const [method, operation] of methodsOf(item))
      addOperation(`${method.toUpperCase()} ${path}`, true, operation);
  // The service sends webhooks, so clients receive their requests and send the responses.
  for (const [name, item] of Object.entries<Part>(document.webhooks ?? {}))
    for (const [, operation] of methodsOf(item)) addOperation(`webhook ${name}`, false, operation);
  return things;

  function add(at: string, isSent: boolean, facts: string[], key = at, growing?: string): void {
    things.set(at, { facts: new Set(facts), isSent, key, growing });
  }

  function addOperation(at: string, isSent: boolean, operation: Part): void {
    const { security = document.security ?? [], operationId, requestBody, responses } = operation;
    const schemes = security.map((way: Part) => {
      const named = Object.keys(way).map((name) => document.components.securitySchemes[name]);
      return `accepts ${show(named.map(({ description: _, ...scheme }) => scheme))}`;
    });
    add(at, isSent, [`called ${operationId}`, ...schemes]);
    for (const one of operation.parameters ?? []) {
      const { name, in: place, ...parameter } = resolve(one).part;
      addSchema(`${at} ${place}.${name}`, isSent, parameter.schema, factsOf(parameter));
    }
    if (requestBody) addContent(`${at} body`, isSent, resolve(requestBody).part);
    for (const [status, response] of Object.entries<Part>(responses ?? {})) {
      const { headers = {}, ...answer } = resolve(response).part;
      addContent(`${at} ${status}`, !isSent, answer);
      for (const [name, header] of Object.entries<Part>(headers)) {
        const { schema, ...rest } = resolve(header).part;
        addSchema(`${at} ${status} header.${name}`, !isSent, schema, factsOf(rest));
      }
    }
  }

  /** Adds a body, or a response. */
  function addContent(at: string, isSent: boolean, { content = {}, required }: Part): void {
    const examples = Object.values<Part>(content).flatMap((one) =>
      Object.values(one.examples ?? {}),
    );
    const codes = (examples as Part[]).flatMap(({ value }) => value?.error?.code ?? []);
    const types = Object.keys(content).map((type) => `of type ${type}`);
    const facts = [...types, ...codes.map((code) => `with the code ${code}`)];
    add(at, isSent, [...facts, ...(required ? [REQUIRED] : [])]);
    for (const { schema } of Object.values<Part>(content))
      addSchema(`${at} content`, isSent, schema);
  }

  function addSchema(
    at: string,
    isSent: boolean,
    given: Part,
    facts: string[] = [],
    key = at,
    within: string[] = [],
  ): void {
    const { part: found, name } = resolve(given);
    const growing = GROWING.find((one) => one === name);
    const closed = growing && found.anyOf?.find((one: Part) => one.enum);
    const schema = closed ?? found;
    const { properties = {}, required = [], items, additionalProperties: others, ...rest } = schema;
    const own = name ?? key;
    add(
      at,
      isSent,
      [...facts, ...factsOf(rest), ...(found.anyOf?.length > 1 && closed ? [OPEN] : [])],
      own,
      growing,
    );
    if (name && within.includes(name)) return;
    const inner = name ? [...within, name] : within;
    const addInner = (end: string, part: Part, itsFacts: string[] = []) =>
      addSchema(at + end, isSent, part, itsFacts, own + end, inner);
    for (const [field, part] of Object.entries<Part>(properties))
      addInner(`.${field}`, part, required.includes(field) ? [REQUIRED] : []);
    if (items) addInner("[]", items);
    if (typeof others === "object") addInner(".*", others);
    if (others === false) things.get(at)?.facts.add("without other properties");
    for (const list of ["allOf", "anyOf", "oneOf"])
      for (const [i, part] of (schema[list] ?? []).entries()) addInner(`(${list} ${i})`, part);
  }

  /** Follows the references from `part`; `name` is that of the last one followed. */
  function resolve(part: Part): { part: Part; name?: string } {
    if (typeof part.$ref !== "string") return { part };
    const [, ...keys] = part.$ref.split("/");
    const found = keys.reduce((parent, key) => parent?.[key], document);
    if (!found) throw new Error(`nothing found at ${part.$ref}`);
    return { name: keys.at(-1) ?? "", ...resolve(found) };
  }
}

function methodsOf(item: Part): [method: string, operation: Part][] {
  return Object.entries<Part>(item).filter(([method]) => METHODS.test(method));
}

/** A fact for each keyword that is not prose. */
function factsOf(part: Part): string[] {
  return Object.entries(part).flatMap(([key, value]) => {
    if (PROSE.test(key) || key === "schema" || value === false) return [];
    if (key === "enum") return value.map((one: unknown) => `value ${show(one)}`);
    if (Array.isArray(value) && key !== "type") return `${key} of ${value.length}`;
    return value === true ? key : `${key} ${show(value)}`;
  });
}

function show(value: unknown): string {
  return JSON.stringify(value);
}
