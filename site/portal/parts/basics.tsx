import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import type { WebhookEvent } from "../../../src/contract/enumerations.ts";
import type { DeliveryView, WebhookView } from "../../../src/history/views.ts";
import { formatExactTime, formatMoment, formatRelative, isAccepted } from "../format.ts";
import { t } from "../text.ts";
import { wasDisabledByFailures } from "../webhook.ts";

const COPIED_MS = 1_800;

/** Shows a relative time; hovering shows it to the second. */
export function Ago({ at }: { at: string }) {
  return (
    <time dateTime={at} title={formatExactTime(at)}>
      {formatRelative(at, Date.now())}
    </time>
  );
}

/** Shows a time to the second with its day; hovering shows its year and how long ago it was. */
export function Moment({ at }: { at: string }) {
  return (
    <time dateTime={at} title={`${formatExactTime(at)} (${formatRelative(at, Date.now())})`}>
      {formatMoment(at)}
    </time>
  );
}

/** The colour of a state, which always accompanies its name. */
export function Badge({ tone, children }: { tone: string; children: ComponentChildren }) {
  return <span class={`badge ${tone}`}>{children}</span>;
}

/** Shows the state of a webhook. Its health is unknown until an event was sent. */
export function Health({ webhook }: { webhook: WebhookView }) {
  const { state, lastAttempt } = webhook;
  if (wasDisabledByFailures(webhook)) return <Badge tone="failing">{t.disabledByFailures}</Badge>;
  if (state === "healthy" && lastAttempt === null)
    return <Badge tone="cancelled">{t.untried}</Badge>;
  return <Badge tone={state}>{t.states[state]}</Badge>;
}

/** Event types, as words. */
export function Types({ types }: { types: readonly WebhookEvent[] }) {
  return (
    <ul class="types">
      {types.map((type) => (
        <li key={type}>{t.types[type] ?? type}</li>
      ))}
    </ul>
  );
}

export type Fact = [name: string, value: ComponentChildren];

/** Names and values, side by side. */
export function Facts({ of }: { of: Fact[] }) {
  return (
    <dl class="facts">
      {of.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** An empty state: what it means, and what to do next. */
export function Empty(props: { title: string; text: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{props.title}</p>
      {props.text && <p>{props.text}</p>}
      {props.children}
    </div>
  );
}

/** A placeholder while something is loading. */
export function Loading() {
  return (
    <div class="loading" role="status">
      <span class="hidden">{t.loading}</span>
      <span class="bone" />
      <span class="bone" />
      <span class="bone" />
    </div>
  );
}

/** An id to read and to copy. */
export function Id({ children }: { children: string }) {
  return (
    <span class="id">
      <span class="mono">{children}</span> <Copy text={children} />
    </span>
  );
}

/** Shows the state of a delivery. One that was sent before, and waits to be sent again, is not new. */
export function DeliveryState({ delivery }: { delivery: DeliveryView }) {
  const { state, lastAttempt, attempts } = delivery;
  const hasFailed = state === "test" && lastAttempt && !isAccepted(lastAttempt);
  const isNew = attempts === 0;
  const name = state === "pending" && !isNew ? t.replays.waiting : t.deliveryStates[state];
  return <Badge tone={hasFailed ? "exhausted" : state}>{name}</Badge>;
}

/** Copies a text. @returns whether the browser allowed it. */
export async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return false;
  }
}

interface CopyProps {
  text: string;
  /** The label of the button; "Copy" if it is clear what it copies. */
  label?: string;
}

/** Copies `text`, or shows that the browser does not allow it. */
export function Copy({ text, label: unused = t.copy }: CopyProps) {
  const [label, setLabel] = useState(unused);
  const timer = useRef(0);
  const copy = async () => {
    clearTimeout(timer.current);
    setLabel((await copyText(text)) ? t.copied : t.copyFailed);
    timer.current = setTimeout(() => setLabel(unused), COPIED_MS);
  };
  return (
    <button type="button" class="quiet" onClick={copy}>
      <span aria-live="polite">{label}</span>
    </button>
  );
}
