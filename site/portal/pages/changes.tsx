import type { ComponentChildren } from "preact";
import type { WebhookDetails } from "../../../src/history/views.ts";
import type { WebhookChangeView as Change } from "../../../src/workspaces/views.ts";
import { listChanges } from "../api.ts";
import { formatExactTime, formatTime } from "../format.ts";
import { useLoad } from "../load.ts";
import { Empty } from "../parts/basics.tsx";
import { LoadState } from "../parts/faults.tsx";
import { Pages } from "../parts/pages.tsx";
import { ReplayFacts } from "../parts/replays.tsx";
import { historyHref } from "../route.ts";
import { t } from "../text.ts";
import { maskUrl, wasDisabledByFailures } from "../webhook.ts";

interface Props {
  webhook: WebhookDetails;
  /** The page; null for the first one. */
  cursor: string | null;
}

/** Lists the changes of a webhook with their actors, newest first. */
export function Changes({ webhook, cursor }: Props) {
  const id = webhook.webhookId;
  const key = `changes ${id} ${cursor ?? ""}`;
  const loaded = useLoad(() => listChanges(id, cursor), key);
  const changes = loaded.data?.items;
  const wasAutomatic = cursor === null && wasDisabledByFailures(webhook);
  return (
    <>
      <LoadState loaded={loaded} />
      {wasAutomatic && webhook.disabledAt && (
        <p class="note bad">{t.changes.automatic(formatTime(webhook.disabledAt))}</p>
      )}
      {changes?.length === 0 && <Empty title={t.changes.empty} text={t.changes.emptyText} />}
      {changes && changes.length > 0 && (
        <ol class="changes">
          {changes.map((change) => (
            <Entry key={`${change.at} ${change.method}`} of={change} />
          ))}
        </ol>
      )}
      {loaded.data && (
        <Pages
          label={t.changes.pages}
          cursor={cursor}
          next={loaded.data.nextCursor}
          href={(next) => historyHref(id, next)}
        />
      )}
    </>
  );
}

interface EntryProps {
  of: Change;
  /** The webhook, where changes of several are listed. */
  children?: ComponentChildren;
}

/** Shows a change with who made it, where and when. */
export function Entry({ of: change, children }: EntryProps) {
  const { at, method, actor, key, via, result, replay } = change;
  return (
    <li>
      <p>
        <b>{describe(change)}</b>
        {children}
        {result !== "ok" && <span class="fault"> {t.changes.failed}</span>}
      </p>
      <p class="small">
        {formatExactTime(at)} · {actor ?? key ?? t.changes.someone} · {t.changes.via[viaOf(via)]}
      </p>
      {method === "updateWebhook" && <Differences of={change} />}
      {replay && <ReplayFacts of={replay} />}
    </li>
  );
}

/** Describes a change in words. */
function describe({ method }: Change): string {
  const { done }: { done: Partial<Record<string, string>> } = t.changes;
  return done[method] ?? method;
}

/** Returns where a change was made: in the portal, with an API key, or by the app through the Platform API. */
function viaOf(via: string): "portal" | "api" | "app" {
  if (via === "portal") return "portal";
  return via.startsWith("api:") ? "api" : "app";
}

type Field = Exclude<keyof NonNullable<Change["before"]>, "replayId">;

/** Shows the value of each field before and after. */
function Differences({ of: { before, after } }: { of: Change }) {
  const fields = Object.keys(after ?? {}) as Field[];
  if (fields.length === 0) return null;
  return (
    <dl class="differences">
      {fields.map((field) => (
        <div key={field}>
          <dt>{t.changes.fields[field]}</dt>
          <dd>
            <del>{show(field, before)}</del> → <ins>{show(field, after)}</ins>
          </dd>
        </div>
      ))}
    </dl>
  );
}

/** The value of a field; query values of a URL are masked. */
function show(field: Field, fields: Change["before"]): string {
  const value = fields?.[field];
  if (value == null || value.length === 0) return t.changes.nothing;
  if (field === "events")
    return (fields?.events ?? []).map((type) => t.types[type] ?? type).join(", ");
  if (Array.isArray(value)) return value.join(", ");
  if (field === "url") return maskUrl(value);
  return field === "disabledAt" || field === "rotatedAt" ? formatTime(value) : value;
}
