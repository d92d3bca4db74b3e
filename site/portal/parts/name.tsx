import { Fragment } from "preact";
import type { WebhookView } from "../../../src/history/views.ts";
import { nameOf } from "../webhook.ts";

/** Shows the name of a webhook. A URL breaks between its parts, so that no word of it is torn apart. */
export function Name({ of: webhook }: { of: Pick<WebhookView, "description" | "url"> }) {
  const parts = nameOf(webhook).split(/(?<=[/.?&=_-])(?=\w)/);
  return (
    <>
      {parts.map((part, i) => (
        <Fragment key={i}>
          {i > 0 && <wbr />}
          {part}
        </Fragment>
      ))}
    </>
  );
}
