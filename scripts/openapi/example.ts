import { HEADERS } from "../../src/delivery/post.ts";
import { DELIVERIES } from "../../src/events/samples.ts";
import { CREATION } from "../../src/http/routes/examples.ts";
import type { Part } from "./changes.ts";

/** The page that shows a delivery, relative to the checkout. */
export const PAGE = "docs/webhooks.md";

const SHOWN = /```http\n.*?```json\n.*?```/s;

/** Returns the page with the document's example of a new lead: its headers, which sign it, and its body. */
export function showDelivery(page: string, document: Part): string {
  const { host, pathname } = new URL(CREATION.url);
  const signed: Part[] = document.webhooks["lead.created"].post.parameters;
  const headers = {
    Host: host,
    ...HEADERS,
    ...Object.fromEntries(signed.map(({ name, example }) => [name, example])),
  };
  const lines = Object.entries(headers).map(([name, value]) => `${name}: ${value}`);
  const body = JSON.stringify(DELIVERIES["lead.created"], null, 2);
  const shown = [
    ...["```http", `POST ${pathname} HTTP/1.1`, ...lines, "```"],
    ...["", "```json", body, "```"],
  ];
  return page.replace(SHOWN, () => shown.join("\n"));
}
