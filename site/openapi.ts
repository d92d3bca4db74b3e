/** A part of the OpenAPI document, used untyped. */
// biome-ignore lint/suspicious/noExplicitAny: the document is read by shape
export type Part = Record<string, any>;

/** An operation or an event in the docs. */
export interface Entry {
  /** `GET`, or `EVENT`. */
  method: string;
  path: string;
  operation: Part;
}

/** The document, with its references followed on demand. */
export class Document {
  readonly whole: Part;

  constructor(whole: Part) {
    this.whole = whole;
  }

  /** Resolves `part`. */
  follow(part: Part): Part {
    if (typeof part.$ref !== "string") return part;
    return this.follow(
      part.$ref
        .split("/")
        .slice(1)
        .reduce((parent: Part, key: string) => parent[key], this.whole),
    );
  }

  /** The entries under each tag, in the order of the tags; events follow operations. */
  get groups(): { name: string; description: string; entries: Entry[] }[] {
    const entries = [...this.#entries("paths"), ...this.#entries("webhooks")];
    return this.whole.tags.map(({ name, description }: Part) => ({
      name,
      description,
      entries: entries.filter(({ operation }) => operation.tags.includes(name)),
    }));
  }

  #entries(of: "paths" | "webhooks"): Entry[] {
    return Object.entries<Part>(this.whole[of]).flatMap(([path, methods]) =>
      Object.entries<Part>(methods).map(([method, operation]) => ({
        method: of === "paths" ? method.toUpperCase() : "EVENT",
        path,
        operation: {
          ...operation,
          parameters: (operation.parameters ?? []).map((one: Part) => this.follow(one)),
        },
      })),
    );
  }
}

/** Returns the name of the schema that a part refers to. */
export function nameOf({ $ref = "" }: Part): string {
  return $ref.split("/").at(-1) ?? "";
}

/** Returns the name of a parameter in its usual case, such as `Idempotency-Key`. */
export function nameOfParameter({ in: place, name }: Part): string {
  const isStandard = /^webhook-/.test(name);
  if (place !== "header" || isStandard) return name;
  return name.replace(/(?<=^|-)[a-z]/g, (letter: string) => letter.toUpperCase());
}

/** Describes the bounds and the default of a value, such as `1 to 100, default 25`; empty if it has none. */
export function boundsOf({
  minimum,
  maximum,
  minLength,
  maxLength,
  minItems,
  default: preset,
}: Part): string {
  const bounds = [];
  if (minimum !== undefined && maximum !== undefined) bounds.push(`${minimum} to ${maximum}`);
  if (minLength && maxLength) bounds.push(`${minLength} to ${maxLength} characters`);
  else if (maxLength) bounds.push(`up to ${maxLength} characters`);
  if (minItems) bounds.push(`at least ${minItems}`);
  if (preset !== undefined && preset !== "") bounds.push(`default ${preset}`);
  return bounds.join(", ");
}

/** Describes where a parameter goes, and whether it is required. */
export function placeOf({ in: place, required }: Part): string {
  const where = place === "header" ? "header" : `in the ${place}`;
  return `${where}, ${required ? "required" : "optional"}`;
}

/** Describes a type in words, such as `string or null` or `list of object`. */
export function typeOf(document: Document, part: Part): string {
  const schema = document.follow(part);
  if (schema.enum?.length === 1) return `"${schema.enum[0]}"`;
  // An open list: its known values, or any other string.
  if (schema.anyOf) return typeOf(document, schema.anyOf[0]);
  if (schema.type === "array") return `list of ${typeOf(document, schema.items)}`;
  const types = [schema.type ?? "any"].flat();
  const words = types.map((type: string) =>
    type === "string" && schema.format === "date-time" ? "time" : type,
  );
  return words.join(" or ");
}
