import { useRef } from "preact/hooks";
import type { WebhookView } from "../../../src/history/views.ts";
import type { WorkspaceDetails as Workspace } from "../../../src/workspaces/views.ts";
import { listFailures, listWebhooks } from "../api.ts";
import {
  explain,
  firstLines,
  formatOutcome,
  formatRate,
  formatSoon,
  formatTime,
} from "../format.ts";
import { useLoad } from "../load.ts";
import { Ago, Empty, Health } from "../parts/basics.tsx";
import { LoadState } from "../parts/faults.tsx";
import { Heading } from "../parts/heading.tsx";
import { Name } from "../parts/name.tsx";
import { Sparkline } from "../parts/sparkline.tsx";
import { failuresHref, webhookHref } from "../route.ts";
import { isReadOnly } from "../session.ts";
import { t } from "../text.ts";
import { failureOf, isTroubled, shortUrl, sortByHealth } from "../webhook.ts";
import { FailureRows } from "./failures.tsx";

/** Shows whether all is well, and every webhook with its health, the ones in trouble first. */
export function Home({ workspace }: { workspace: Workspace }) {
  const loaded = useLoad(listWebhooks, "webhooks");
  const webhooks = loaded.data;
  const isFull = webhooks !== null && webhooks.length >= workspace.webhooksMax;
  if (webhooks === null)
    return (
      <>
        <Heading title={t.webhooks}>{t.webhooks}</Heading>
        <LoadState loaded={loaded} />
      </>
    );
  const mayAdd = !isReadOnly() && !isFull;
  return (
    <>
      <div class="head">
        <Verdict webhooks={webhooks} />
        {webhooks.length > 0 && mayAdd && <SubscribeLink isPrimary={!webhooks.some(isTroubled)} />}
      </div>
      <LoadState loaded={loaded} />
      {webhooks.length === 0 ? (
        <Empty title={t.home.emptyTitle} text={t.home.emptyText}>
          {mayAdd && <SubscribeLink isPrimary />}
        </Empty>
      ) : (
        <Table webhooks={sortByHealth(webhooks)} />
      )}
      <Troubled webhooks={webhooks} />
      {isFull && <p class="hint">{t.home.full(workspace.webhooksMax)}</p>}
    </>
  );
}

function SubscribeLink({ isPrimary }: { isPrimary: boolean }) {
  return (
    <a class={isPrimary ? "button primary" : "button"} href="#/subscribe">
      {t.subscribe.title}
    </a>
  );
}

/** Says in one sentence whether all is well. The list begins with the webhooks that it is about. */
function Verdict({ webhooks }: { webhooks: WebhookView[] }) {
  if (webhooks.length === 0) return <Heading title={t.webhooks}>{t.webhooks}</Heading>;
  const troubled = webhooks.filter(isTroubled);
  const active = webhooks.filter(({ state }) => state !== "disabled");
  const tone = troubled.length > 0 ? "bad" : active.length > 0 ? "good" : "";
  return (
    <Heading title={t.webhooks}>
      <span class={`verdict ${tone}`}>
        {troubled.length > 0
          ? describeTrouble(troubled, webhooks.length)
          : t.home.well(active.length, webhooks.length)}
      </span>
    </Heading>
  );
}

/** Once a webhook is in trouble, shows what failed, and goes on: it also shows the results of what was resent. */
function Troubled({ webhooks }: { webhooks: WebhookView[] }) {
  const isShown = useRef(false);
  isShown.current ||= webhooks.some(isTroubled);
  return isShown.current ? <Failed webhooks={webhooks} /> : null;
}

/** The newest deliveries that failed, each of which can be resent here. */
function Failed({ webhooks }: { webhooks: WebhookView[] }) {
  const query = new URLSearchParams({ limit: "5" });
  const loaded = useLoad(() => listFailures(query), "failed");
  return (
    <section aria-label={t.webhook.failed}>
      <div class="head">
        <h2>{t.webhook.failed}</h2>
        <a href={failuresHref()}>{t.webhook.allFailed}</a>
      </div>
      <LoadState loaded={loaded} />
      {loaded.data && (
        <FailureRows
          failures={loaded.data.items}
          webhooks={webhooks}
          empty={<Empty title={t.failures.empty} text={t.failures.emptyText} />}
        />
      )}
    </section>
  );
}

function describeTrouble(troubled: WebhookView[], all: number): string {
  const areFailing = troubled.every(({ state }) => state === "failing");
  return (areFailing ? t.home.failing : t.home.troubled)(troubled.length, all);
}

function Table({ webhooks }: { webhooks: WebhookView[] }) {
  return (
    <table class="rows webhooks">
      <thead>
        <tr>
          <th scope="col">{t.home.webhook}</th>
          <th scope="col">{t.home.health}</th>
          <th scope="col">{t.home.success}</th>
          <th scope="col">{t.home.lastFailure}</th>
          <th scope="col">{t.webhook.nextAttempt}</th>
        </tr>
      </thead>
      <tbody>
        {webhooks.map((webhook) => (
          <Row key={webhook.webhookId} webhook={webhook} />
        ))}
      </tbody>
    </table>
  );
}

function Row({ webhook }: { webhook: WebhookView }) {
  const { webhookId, url, description, events, successRate, days } = webhook;
  return (
    <tr class="linked">
      <th scope="row">
        <a href={webhookHref(webhookId)}>
          <Name of={webhook} />
        </a>
        {description && <span class="mono small">{shortUrl(url)}</span>}
        <span class="small">{events.map((type) => t.types[type] ?? type).join(" · ")}</span>
      </th>
      <td class="row-state">
        <Health webhook={webhook} />
      </td>
      <td class={successRate === null ? "row-none" : "row-success"}>
        <span>{successRate === null ? "–" : formatRate(successRate)}</span>
        <Sparkline days={days} />
      </td>
      <td class={failureOf(webhook) ? "row-last" : "row-none"}>
        <span class="row-label">{t.home.lastFailure}</span> <LastFailure webhook={webhook} />
      </td>
      <td class={webhook.nextAttemptAt ? "row-next" : "row-none"}>
        <span class="row-label">{t.webhook.nextAttempt}</span>{" "}
        {webhook.nextAttemptAt ? <NextAttempt webhook={webhook} /> : <span>–</span>}
      </td>
    </tr>
  );
}

/** How much of a server's response a row has. */
const SAID = { lines: 1, characters: 120 };

/** Describes the newest failure, with the server's own words while the webhook is in trouble. */
function LastFailure({ webhook }: { webhook: WebhookView }) {
  const { lastFailure, state, failingSince } = webhook;
  const failure = failureOf(webhook);
  if (!failure) return <span>–</span>;
  // The stored response may belong to another attempt than the newest one.
  const { body = "", location } = (lastFailure?.at === failure.at && lastFailure.response) || {};
  const said = firstLines(body, SAID) || location;
  return (
    <>
      {formatOutcome(failure)}, <Ago at={failure.at} />
      <span class="small">{explain(failure)?.means}</span>
      {isTroubled(webhook) && said && <q class="mono small">{said}</q>}
      {state === "failing" && failingSince && (
        <span class="small">{t.home.failingSince(formatTime(failingSince))}</span>
      )}
    </>
  );
}

/** Shows when the next attempt may start. */
export function NextAttempt({ webhook: { nextAttemptAt } }: { webhook: WebhookView }) {
  const now = Date.now();
  if (nextAttemptAt === null) return t.none;
  if (Date.parse(nextAttemptAt) <= now) return t.webhook.asap;
  return <time dateTime={nextAttemptAt}>{formatSoon(nextAttemptAt, now)}</time>;
}
