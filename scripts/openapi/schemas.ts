import { isDeepStrictEqual } from "node:util";

/** A part of an OpenAPI document, used untyped. */
// biome-ignore lint/suspicious/noExplicitAny: documents are compared by shape, whatever they hold
export type Part = Record<string, any>;

/**
 * Who sends the data: `sent` by clients, whose data must still be accepted; `received` by clients.
 */
export type Direction = "sent" | "received";

/**
 * Enumerations whose new values are announced and break nobody: a new channel adds a type of
 * automation (CHANGELOG.md), and a reason only adds detail to its error code.
 */
const GROWING = new Set(["AutomationType", "ErrorReason"]);

const WORDS = ["title", "description", "example", "examples", "deprecated", "$comment"];
const LOWER_BOUNDS = ["minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties"];
const UPPER_BOUNDS = ["maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties"];
const EXACT = ["format", "pattern", "multipleOf", "uniqueItems"];
const LISTS = ["allOf", "anyOf", "oneOf", "prefixItems"];
const UNDERSTOOD = new Set([
  ...[...WORDS, ...LOWER_BOUNDS, ...UPPER_BOUNDS, ...EXACT, ...LISTS],
  ...["type", "enum", "const", "default", "properties", "required", "additionalProperties"],
  ...["items", "$ref"],
]);

/**
 * Follows the references from `part` within `document`; `name` is that of the last one followed.
 */
export function resolve(document: Part, part: Part): { part: Part; name?: string } {
  let resolved: { part: Part; name?: string } = { part };
  while (typeof resolved.part.$ref === "string") {
    const keys = resolved.part.$ref.split("/").slice(1);
    const target = keys.reduce(
      (parent: Part | undefined, key) =>
        parent?.[key.replaceAll("~1", "/").replaceAll("~0", "~")] as Part | undefined,
      document,
    );
    if (!target) throw new Error(`nothing found at ${resolved.part.$ref}`);
    resolved = { part: target, name: keys.at(-1) ?? "" };
  }
  return resolved;
}

/** Two documents being compared, and the differences found so far. */
export class Comparison {
  readonly before: Part;
  readonly after: Part;
  /** What breaks a client, one sentence each: where, and what happened there. */
  readonly breaking = new Set<string>();
  /** New values of enumerations that may grow. */
  readonly growing = new Map<string, { name: string; value: unknown }>();
  /** Pairs of named schemas already compared. */
  readonly #seen = new Set<string>();

  constructor(before: Part, after: Part) {
    this.before = before;
    this.after = after;
  }

  breaks(at: string, what: string): void {
    this.breaking.add(`${at}: ${what}`);
  }

  /**
   * Reports what of the schema `before` no longer holds in `after`. What `sent` data may be must not
   * shrink; what `received` data may be must not grow, except for new properties. Keywords that are
   * not understood here must not change.
   */
  compareSchemas(direction: Direction, before: unknown, after: unknown, at: string): void {
    const { part: b, name } = resolve(this.before, toSchema(before));
    const { part: a, name: nameAfter } = resolve(this.after, toSchema(after));
    if (name && nameAfter) {
      const pair = `${direction} ${name} ${nameAfter}`;
      if (this.#seen.has(pair)) return;
      this.#seen.add(pair);
    }
    this.#compareTypes(direction, b, a, at);
    this.#compareValues(direction, b, a, at, name ?? nameAfter);
    this.#compareConstraints(direction, b, a, at);
    this.#compareProperties(direction, b, a, at);
    this.#compareParts(direction, b, a, at);
  }

  #compareTypes(direction: Direction, before: Part, after: Part, at: string): void {
    const [narrow, wide] = direction === "sent" ? [before, after] : [after, before];
    const allowed = toTypes(wide);
    const fits = toTypes(narrow).every(
      (type) => allowed.includes(type) || (type === "integer" && allowed.includes("number")),
    );
    if (!fits) this.breaks(at, `its type ${show(before.type)} became ${show(after.type)}`);
  }

  #compareValues(direction: Direction, before: Part, after: Part, at: string, name = ""): void {
    const was = toValues(before);
    const is = toValues(after);
    if (!was && is && direction === "sent") this.breaks(at, `it is limited to ${show(is)}`);
    if (was && !is && direction === "received")
      this.breaks(at, `it is no longer limited to ${show(was)}`);
    if (!was || !is) return;
    for (const value of was)
      if (!is.includes(value)) this.breaks(at, `the value ${show(value)} is gone`);
    if (direction === "sent") return;
    for (const value of is.filter((value) => !was.includes(value))) {
      if (GROWING.has(name)) this.growing.set(`${name} ${value}`, { name, value });
      else this.breaks(at, `the value ${show(value)} is new in a closed list`);
    }
  }

  #compareConstraints(direction: Direction, before: Part, after: Part, at: string): void {
    const changed = (key: string) =>
      this.breaks(at, `${key} ${show(before[key])} → ${show(after[key])}`);
    for (const [bounds, sign] of [
      [LOWER_BOUNDS, -1],
      [UPPER_BOUNDS, 1],
    ] as const)
      for (const key of bounds) {
        const room = (schema: Part) => sign * (schema[key] ?? sign * Number.POSITIVE_INFINITY);
        const wider = room(after) - room(before);
        if (direction === "sent" ? wider < 0 : wider > 0) changed(key);
      }
    for (const key of EXACT) {
      // Sent data may get no new constraint, received data may lose none.
      const constraint = (direction === "sent" ? after : before)[key];
      if (constraint !== undefined && !isDeepStrictEqual(before[key], after[key])) changed(key);
    }
    if (direction === "sent" && !isDeepStrictEqual(before.default, after.default))
      changed("default");
    for (const key of new Set([...Object.keys(before), ...Object.keys(after)]))
      if (
        !UNDERSTOOD.has(key) &&
        !key.startsWith("x-") &&
        !isDeepStrictEqual(before[key], after[key])
      )
        changed(key);
  }

  #compareProperties(direction: Direction, before: Part, after: Part, at: string): void {
    const is: Part = after.properties ?? {};
    for (const [name, schema] of Object.entries<unknown>(before.properties ?? {}))
      if (name in is) this.compareSchemas(direction, schema, is[name], `${at}.${name}`);
      else this.breaks(`${at}.${name}`, "it is gone");
    const wasRequired: string[] = before.required ?? [];
    const isRequired: string[] = after.required ?? [];
    if (direction === "sent") {
      for (const name of isRequired)
        if (!wasRequired.includes(name)) this.breaks(`${at}.${name}`, "it is now required");
    } else {
      for (const name of wasRequired)
        if (name in is && !isRequired.includes(name))
          this.breaks(`${at}.${name}`, "it is no longer always there");
    }
  }

  /** Compares the schemas of items, of additional properties, and of lists of schemas. */
  #compareParts(direction: Direction, before: Part, after: Part, at: string): void {
    const compare = (b: unknown, a: unknown, end: string) =>
      this.compareSchemas(direction, b, a, at + end);
    if (before.items || after.items) compare(before.items, after.items, "[]");
    for (const key of LISTS) {
      const was: unknown[] = before[key] ?? [];
      const is: unknown[] = after[key] ?? [];
      if (was.length !== is.length)
        this.breaks(at, `${key} has ${was.length} → ${is.length} schemas`);
      else was.forEach((schema, i) => void compare(schema, is[i], `(${key} ${i})`));
    }
    const { additionalProperties: was } = before;
    const { additionalProperties: is } = after;
    if (was === undefined && is === undefined) return;
    // Clients must tolerate unknown properties in what they receive, unless they are the data.
    const meant = direction === "sent" ? was !== false : was !== undefined && was !== false;
    if (!meant) return;
    if (is === false) this.breaks(at, "further properties are refused");
    else compare(was, is, ".*");
  }
}

/** `true` and absence allow anything, `false` nothing (JSON Schema 2020-12, 4.3.2). */
function toSchema(schema: unknown): Part {
  if (schema === false) return { not: {} };
  return typeof schema === "object" && schema !== null ? schema : {};
}

function toTypes({ type }: Part): string[] {
  return type === undefined
    ? ["array", "boolean", "null", "number", "object", "string"]
    : [type].flat();
}

function toValues(schema: Part): unknown[] | undefined {
  return "const" in schema ? [schema.const] : schema.enum;
}

function show(value: unknown): string {
  return value === undefined ? "(none)" : JSON.stringify(value);
}
