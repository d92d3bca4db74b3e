import { type Document, type Part, typeOf } from "./openapi.ts";

/** A field of the body of an event, as the portal shows it. */
export interface EventField {
  /** Its path, such as `data.actions[].type`. */
  path: string;
  /** Its type in words, such as `string or null`. */
  type: string;
  /** The values that it may have, if only some; of an open list, those that are known. */
  values: string[];
  isRequired: boolean;
  about: string;
}

/** Lists the fields of each event type, by the schema of its body in the document. */
export function listEventFields(document: Document): Record<string, EventField[]> {
  const events = Object.entries<Part>(document.whole.webhooks);
  return Object.fromEntries(
    events.map(([type, { post }]) => [
      type,
      fieldsOf(document, post.requestBody.content["application/json"].schema, ""),
    ]),
  );
}

function fieldsOf(document: Document, part: Part, parent: string): EventField[] {
  const { properties = {}, required = [] } = document.follow(part);
  return Object.entries<Part>(properties).flatMap(([name, property]) => {
    const path = `${parent}${name}`;
    const schema = document.follow(property);
    const [inner, at] = schema.items ? [schema.items, `${path}[].`] : [schema, `${path}.`];
    const { enum: values = [] } = schema.anyOf ? document.follow(schema.anyOf[0]) : schema;
    const field = {
      path,
      type: typeOf(document, property),
      values: values.length > 1 ? values : [],
      isRequired: required.includes(name),
      about: schema.description ?? "",
    };
    return [field, ...fieldsOf(document, inner, at)];
  });
}
