import type { ComponentChildren } from "preact";
import type { Fault } from "../api.ts";
import type { Loaded } from "../load.ts";
import { workspaceHistoryHref } from "../route.ts";
import { t } from "../text.ts";
import { Empty, Loading } from "./basics.tsx";

type Texts = Partial<Record<string, string>>;

/** Describes why a call failed, in a sentence. */
export function describeFault({ status, body, retryAfterSeconds }: Fault): string {
  if (status === null) return t.faults.offline;
  if (retryAfterSeconds !== null) return t.faults.waitBefore(retryAfterSeconds);
  const { reasons, errors }: { reasons: Texts; errors: Texts } = t;
  const reason = body?.details.reason;
  return (reason && reasons[reason]) || (body && errors[body.code]) || t.errors.internal_error;
}

/** Explains why the reader's action failed: with `text`, if it is better than the usual explanation. */
export function ActionFault({ fault, text }: { fault: Fault | null; text?: string | undefined }) {
  return (
    <div role="alert">
      {fault && (
        <p class="note bad">
          {text ?? describeFault(fault)} <Reference fault={fault} />
        </p>
      )}
    </div>
  );
}

/** Says why an event cannot be sent again. */
export function SendFault({ fault }: { fault: Fault | null }) {
  const place = fault?.body?.details.parameter?.split("[")[0];
  const { webhookId, eventIds } = t.sendAgain.faults;
  const text = { webhookId, eventIds }[place as "webhookId" | "eventIds"];
  return <ActionFault fault={fault} text={text} />;
}

/** The server's error about a field of a form; undefined if there is none. */
export function faultOf(fault: Fault | null, field: string): string | undefined {
  const place = fault?.body?.details.parameter?.split(/[.[]/)[0];
  return fault && place === field ? describeFault(fault) : undefined;
}

/**
 * Shows that something is being loaded, or why it could not be loaded or reloaded, and offers to try again;
 * nothing once it is there.
 */
export function LoadState({ loaded }: { loaded: Loaded<unknown> }) {
  const { fault, data, reload } = loaded;
  if (!fault) return data === null ? <Loading /> : null;
  if (fault.status === 404) return <NotFound />;
  const seconds = fault.retryAfterSeconds;
  return (
    <div class="note bad" role="alert">
      <p>
        {seconds === null ? describeFault(fault) : t.faults.rateLimited(seconds)}{" "}
        {data !== null && t.faults.stale} <Reference fault={fault} />
      </p>
      <button type="button" onClick={reload}>
        {t.retry}
      </button>
    </div>
  );
}

/** Shown where nothing exists, with a way back. */
export function NotFound() {
  return <Missing title={t.faults.notFound} text={t.faults.notFoundText} />;
}

/** Shown for a webhook that the workspace does not have. The link of an e-mail may be about another workspace. */
export function NotHere({ workspace }: { workspace: string }) {
  return (
    <Missing title={t.faults.notHere(workspace)} text={t.faults.notHereText(workspace)}>
      <a class="button" href={workspaceHistoryHref(null)}>
        {t.faults.toHistory}
      </a>
    </Missing>
  );
}

function Missing(props: { title: string; text: string; children?: ComponentChildren }) {
  return (
    <Empty title={props.title} text={props.text}>
      <div class="buttons">
        <a class="button" href="#/webhooks">
          {t.faults.toWebhooks}
        </a>
        {props.children}
      </div>
    </Empty>
  );
}

/** The request id to look up in the logs, if the fault is not the reader's. */
function Reference({ fault }: { fault: Fault }) {
  if (fault.requestId === null || (fault.status ?? 0) < 500) return null;
  return <small>{t.faults.reference(fault.requestId)}</small>;
}
