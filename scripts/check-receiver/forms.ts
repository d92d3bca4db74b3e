import type { WebhookDelivery } from "../../src/events/bodies.ts";

/** The ways to write an event in plain JSON. Each of them stays unchanged with some serializer. */
export const PLAIN_FORMS: ((event: WebhookDelivery) => string)[] = [
  (value: unknown) => value,
  sorted,
].flatMap((order) => [
  (event: WebhookDelivery) => JSON.stringify(order(plain(event))),
  (event: WebhookDelivery) => spaced(JSON.stringify(order(plain(event)), null, 1)),
  (event: WebhookDelivery) => JSON.stringify(order(plain(event)), null, 2),
  (event: WebhookDelivery) => JSON.stringify(order(plain(event)), null, 4),
]);

/** Returns the event without the values that serializers write differently. */
function plain({ data, ...event }: WebhookDelivery): object {
  const custom_fields = { budget: "10000" };
  return {
    ...event,
    data: { ...data, name: "Camille Durand", phone: "0600000000", custom_fields },
  };
}

/** Returns the value with the keys of every object in alphabetical order. */
function sorted(value: unknown): unknown {
  if (typeof value !== "object" || value === null) return value;
  const keys = Object.entries(value).sort(([a], [b]) => (a < b ? -1 : 1));
  return Object.fromEntries(keys.map(([key, inner]) => [key, sorted(inner)]));
}

/** Writes JSON on one line with a space after each comma and colon, as Python does. */
function spaced(indented: string): string {
  return indented.replace(/([{}]|^)\n\s*|\n\s*(?=})/g, "$1").replace(/,\n\s*/g, ", ");
}
