import { useLayoutEffect, useRef } from "preact/hooks";
import type { WebhookDetails } from "../../../src/history/views.ts";
import type { WorkspaceDetails as Workspace } from "../../../src/workspaces/views.ts";
import { EditDialog } from "../actions/edit.tsx";
import { RedeliverDialog } from "../actions/redeliver.tsx";
import { TestDialog } from "../actions/test.tsx";
import { readWebhook } from "../api.ts";
import { useLoad } from "../load.ts";
import { Copy, Health } from "../parts/basics.tsx";
import { useCurrentInView } from "../parts/current-in-view.ts";
import { DialogButton } from "../parts/dialog.tsx";
import { LoadState, NotHere } from "../parts/faults.tsx";
import { Heading, usePageTitle } from "../parts/heading.tsx";
import { Name } from "../parts/name.tsx";
import { RunningReplays } from "../parts/replays.tsx";
import { savedPosition, TABS, type Tab, webhookHref } from "../route.ts";
import { isReadOnly } from "../session.ts";
import { t } from "../text.ts";
import { countWaiting, formatWaiting, maskUrl, nameOf } from "../webhook.ts";
import { Changes } from "./changes.tsx";
import { Deliveries } from "./deliveries.tsx";
import { Overview } from "./overview.tsx";
import { Settings } from "./settings.tsx";

interface Props {
  id: string;
  tab: Tab;
  /** The delivery that is open; null for none. */
  eventId: string | null;
  /** The filters and the page of the deliveries. */
  query: URLSearchParams;
  workspace: Workspace;
}

/** Shows one webhook: its name, its health and its tabs. */
export function Webhook({ id, tab, eventId, query, workspace }: Props) {
  const loaded = useLoad(() => readWebhook(id), `webhook ${id}`);
  const webhook = loaded.data;
  useScrollPosition(tab, eventId);
  if (loaded.fault?.status === 404) return <NotHere workspace={workspace.name} />;
  return (
    <>
      <p class="crumb">
        <a href="#/webhooks">← {t.webhooks}</a>
      </p>
      {webhook === null ? (
        <>
          <Heading title={t.webhooks}>{loaded.fault ? t.webhooks : t.loading}</Heading>
          <LoadState loaded={loaded} />
        </>
      ) : (
        <>
          <Head webhook={webhook} tab={tab} workspace={workspace} />
          <LoadState loaded={loaded} />
          <Tabs webhook={webhook} tab={tab} />
          <RunningReplays webhook={webhook} />
          {tab === "overview" && <Overview webhook={webhook} types={workspace.events} />}
          {tab === "deliveries" && (
            <Deliveries webhook={webhook} query={query} eventId={eventId} workspace={workspace} />
          )}
          {tab === "settings" && <Settings webhook={webhook} types={workspace.events} />}
          {tab === "history" && <Changes webhook={webhook} cursor={query.get("cursor")} />}
        </>
      )}
    </>
  );
}

/** On a wide screen, a delivery opens beside the list, which stays where it is. */
const IS_WIDE = matchMedia("(width >= 1000px)");

/** Scrolls to where the reader left this place or, in a new one, to its top. */
function useScrollPosition(tab: Tab, eventId: string | null): void {
  const shownTab = useRef(tab);
  const { hash } = location;
  useLayoutEffect(() => {
    const saved = savedPosition();
    if (saved !== null) scrollTo({ top: saved, behavior: "instant" });
    else if (shownTab.current !== tab || (eventId !== null && !IS_WIDE.matches))
      scrollTo({ top: 0, behavior: "instant" });
    shownTab.current = tab;
  }, [hash]);
}

function Head({ webhook, tab, workspace }: Omit<TabsProps, never> & { workspace: Workspace }) {
  const name = nameOf(webhook);
  return (
    <div class="head">
      <div>
        <div class="titled">
          <Heading title={name}>
            <Name of={webhook} />
          </Heading>
          <Health webhook={webhook} />
        </div>
        <p class="address">
          <span class="mono" title={maskUrl(webhook.url)}>
            {maskUrl(webhook.url)}
          </span>{" "}
          <Copy text={webhook.url} />
        </p>
      </div>
      {!isReadOnly() && <Actions webhook={webhook} types={workspace.events} />}
      <TabTitle key={tab} title={tab === "overview" ? name : `${t.tabs[tab]} – ${name}`} />
    </div>
  );
}

/** Names the tab in the title of the page, which its heading has set. */
function TabTitle({ title }: { title: string }) {
  usePageTitle(title);
  return null;
}

interface TabsProps {
  webhook: WebhookDetails;
  tab: Tab;
}

function Tabs({ webhook, tab }: TabsProps) {
  const hasFailed = webhook.retrying > 0 || webhook.state === "failing";
  const isWaiting = hasFailed && countWaiting(webhook) > 0;
  // The number takes room, so the current tab moves with it.
  const row = useCurrentInView<HTMLElement>(`${tab} ${isWaiting}`);
  return (
    <nav ref={row} class="tabs" aria-label={t.tabs.label}>
      {TABS.map((name) => (
        <a
          key={name}
          href={webhookHref(webhook.webhookId, name)}
          aria-current={name === tab ? "page" : undefined}
        >
          {t.tabs[name]}
          {name === "deliveries" && isWaiting && (
            <span class="count bad">{t.tabs.waiting(formatWaiting(webhook))}</span>
          )}
        </a>
      ))}
    </nav>
  );
}

/** The most frequent actions. The others are among the settings. */
function Actions({ webhook, types }: { webhook: WebhookDetails; types: Workspace["events"] }) {
  return (
    <div class="buttons actions">
      <DialogButton label={t.test.button}>
        {(onClose) => <TestDialog webhook={webhook} onClose={onClose} />}
      </DialogButton>
      {webhook.state !== "disabled" && (
        <DialogButton label={t.sendAgain.button}>
          {(onClose) => <RedeliverDialog webhook={webhook} onClose={onClose} />}
        </DialogButton>
      )}
      <DialogButton label={t.edit.button} draft="edit">
        {(onClose) => <EditDialog webhook={webhook} types={types} draft="edit" onClose={onClose} />}
      </DialogButton>
    </div>
  );
}
