import type { WebhookEvent as Kind } from "../../../src/contract/enumerations.ts";
import { DISABLE_AFTER_FAILURES, DISABLE_AFTER_MS } from "../../../src/contract/limits.ts";
import type { WebhookView as Subscription, WebhookDetails } from "../../../src/history/views.ts";
import type { WorkspaceDetails as Workspace } from "../../../src/workspaces/views.ts";
import { DisableDialog } from "../actions/disable.tsx";
import { EditDialog } from "../actions/edit.tsx";
import { EnableDialog } from "../actions/enable.tsx";
import { HeadersDialog } from "../actions/headers.tsx";
import { RedeliverDialog } from "../actions/redeliver.tsx";
import { RemoveDialog } from "../actions/remove.tsx";
import { SecretDialog } from "../actions/secret.tsx";
import { TestDialog } from "../actions/test.tsx";
import { endOverlap, readWebhook } from "../api.ts";
import { explain, formatOutcome, formatPending, formatTime } from "../format.ts";
import { useLoad } from "../load.ts";
import { useDeliveries } from "../look-through.ts";
import { Facts, Id, Kinds, State, Time, Url } from "../parts/basics.tsx";
import { DialogButton } from "../parts/dialog.tsx";
import { FormDialog } from "../parts/dialog-form.tsx";
import { LoadState } from "../parts/faults.tsx";
import { Heading } from "../parts/heading.tsx";
import { t } from "../text.ts";
import { Days } from "./days.tsx";
import { Deliveries } from "./deliveries.tsx";

/** One subscription: its health, actions, last days and deliveries. */
export function Webhook(props: { id: string; query: URLSearchParams; workspace: Workspace }) {
  const { id, query, workspace } = props;
  const loaded = useLoad(() => readWebhook(id));
  const search = useDeliveries(id, query);
  const reload = () => {
    loaded.reload();
    search.reload();
  };
  const webhook = loaded.data;
  if (loaded.fault?.status === 404) return <LoadState loaded={loaded} />;
  return (
    <>
      <p class="crumb">
        <a href="#/webhooks">← {t.subscriptions}</a>
      </p>
      {webhook === null ? (
        <>
          <Heading>{loaded.fault ? t.subscriptions : t.loading}</Heading>
          <LoadState loaded={loaded} />
        </>
      ) : (
        <>
          <Title webhook={webhook} />
          {webhook.description && <p class="lead">{webhook.description}</p>}
          <LoadState loaded={loaded} />
          <Trouble webhook={webhook} />
          <Overlap webhook={webhook} onDone={reload} />
          <Actions webhook={webhook} kinds={workspace.events} onDone={reload} />
          <div class="overview">
            <About webhook={webhook} />
            <Days days={webhook.days} />
          </div>
          <Deliveries
            {...{ webhook, query, search }}
            retentionDays={workspace.retentionDays}
            onDone={reload}
          />
        </>
      )}
    </>
  );
}

function Title({ webhook }: { webhook: Subscription }) {
  return (
    <div class="head">
      <Heading>
        <Url of={webhook.url} />
      </Heading>
      <State webhook={webhook} />
    </div>
  );
}

/** What is wrong with it, and the consequences. */
function Trouble({ webhook }: { webhook: Subscription }) {
  const { state, failingSince, disabledAt, failures } = webhook;
  if (state === "disabled" && disabledAt !== null)
    return hasFailedForLong(webhook, disabledAt) ? (
      <Failing text={t.subscription.disabledFailing(formatTime(disabledAt))} webhook={webhook} />
    ) : (
      <p class="note bad">{t.subscription.disabled(formatTime(disabledAt))}</p>
    );
  if (state === "failing" && failingSince !== null)
    return (
      <Failing
        text={t.subscription.failing(failures, formatTime(failingSince))}
        webhook={webhook}
      />
    );
  if (state === "rejecting") return <Rejected webhook={webhook} />;
  if (state === "backlog") return <p class="note">{t.subscription.backlog}</p>;
  return state === "slow" ? <p class="note warn">{t.subscription.slow}</p> : null;
}

/** The kinds of which nothing is accepted, and what to do about each. */
function Rejected({ webhook }: { webhook: Subscription }) {
  return (
    <div class="note warn">
      {webhook.rejected.map(({ type, since, ...last }) => (
        <p key={type}>
          {t.subscription.rejecting(t.kinds[type], formatTime(since))} {formatOutcome(last)}:{" "}
          {explain(last)}
        </p>
      ))}
    </div>
  );
}

/** That it fails, and what to do about its last failure. */
function Failing({ text, webhook }: { text: string; webhook: Subscription }) {
  const trouble = webhook.lastAttempt && explain(webhook.lastAttempt);
  return (
    <div class="note bad">
      <p>{text}</p>
      {trouble && <p>{trouble}</p>}
    </div>
  );
}

/** Whether its failures disabled it, and not somebody. */
function hasFailedForLong({ failingSince, failures }: Subscription, disabledAt: string): boolean {
  const failedMs = failingSince === null ? 0 : Date.parse(disabledAt) - Date.parse(failingSince);
  return failures >= DISABLE_AFTER_FAILURES && failedMs >= DISABLE_AFTER_MS;
}

/** While a rotated secret still signs, until when, and a way to end that. */
function Overlap({ webhook, onDone }: Omit<ActionsProps, "kinds">) {
  if (webhook.overlapEndsAt === null) return null;
  const end = async () => {
    await endOverlap(webhook.webhookId);
    onDone();
    return t.endOverlap.result;
  };
  return (
    <div class="note">
      <p>{t.endOverlap.until(formatTime(webhook.overlapEndsAt))}</p>
      <DialogButton label={t.endOverlap.button}>
        {(onClose) => (
          <FormDialog texts={t.endOverlap} isDangerous act={end} onClose={onClose}>
            <p>{t.endOverlap.text}</p>
          </FormDialog>
        )}
      </DialogButton>
    </div>
  );
}

interface ActionsProps {
  webhook: WebhookDetails;
  kinds: Kind[];
  onDone(): void;
}

function Actions({ webhook, kinds, onDone }: ActionsProps) {
  const isDisabled = webhook.state === "disabled";
  return (
    <div class="buttons actions">
      {isDisabled && (
        <DialogButton label={t.enable.button} class="primary">
          {(onClose) => <EnableDialog {...{ webhook, onClose, onDone }} />}
        </DialogButton>
      )}
      <DialogButton label={t.test.button}>
        {(onClose) => <TestDialog {...{ webhook, onClose, onDone }} />}
      </DialogButton>
      {!isDisabled && (
        <DialogButton label={t.sendAgain.button}>
          {(onClose) => <RedeliverDialog {...{ webhook, onClose, onDone }} />}
        </DialogButton>
      )}
      <DialogButton label={t.edit.button}>
        {(onClose) => <EditDialog {...{ webhook, kinds, onClose, onDone }} />}
      </DialogButton>
      <DialogButton label={t.headers.button}>
        {(onClose) => <HeadersDialog {...{ webhook, onClose, onDone }} />}
      </DialogButton>
      <DialogButton label={t.secret.button}>
        {(onClose) => <SecretDialog {...{ webhook, onClose }} />}
      </DialogButton>
      {!isDisabled && (
        <DialogButton label={t.disable.button}>
          {(onClose) => <DisableDialog {...{ webhook, onClose, onDone }} />}
        </DialogButton>
      )}
      <DialogButton label={t.remove.button} class="danger-quiet">
        {(onClose) => <RemoveDialog {...{ webhook, onClose }} />}
      </DialogButton>
    </div>
  );
}

function About({ webhook }: { webhook: WebhookDetails }) {
  const { nextAttemptAt: next, lastAttempt: last, createdAt, keyId, keyLabel } = webhook;
  return (
    <Facts
      of={[
        [t.subscription.events, <Kinds key="" kinds={webhook.events} />],
        [
          t.subscription.lastAttempt,
          last ? (
            <>
              {formatOutcome(last)}, <Time at={last.at} />
            </>
          ) : (
            t.none
          ),
        ],
        [t.subscription.pending, formatPending(webhook) ?? t.none],
        [
          t.subscription.nextAttempt,
          next === null ? (
            t.none
          ) : Date.parse(next) <= Date.now() ? (
            t.subscription.asap
          ) : (
            <Time at={next} />
          ),
        ],
        [t.subscription.created, formatTime(createdAt)],
        [t.subscription.createdBy, keyLabel ?? keyId ?? t.subscription.portal],
        ...(webhook.headers.length > 0
          ? ([[t.subscription.headers, webhook.headers.join(", ")]] as [string, string][])
          : []),
        [t.subscription.id, <Id key="">{webhook.webhookId}</Id>],
      ]}
    />
  );
}
