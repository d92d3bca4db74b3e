import { useEffect, useState } from "preact/hooks";
import type { WorkspaceDetails as Workspace } from "../../src/workspaces/views.ts";
import { countFailures, readWorkspace } from "./api.ts";
import { platformName } from "./deployment.ts";
import { formatTime, timeZone } from "./format.ts";
import { forgetLoaded, reloadAll, useLoad } from "./load.ts";
import { Events } from "./pages/events.tsx";
import { Failures } from "./pages/failures.tsx";
import { WorkspaceHistory } from "./pages/history.tsx";
import { Home } from "./pages/home.tsx";
import { Subscribe } from "./pages/subscribe.tsx";
import { Usage } from "./pages/usage.tsx";
import { Webhook } from "./pages/webhook.tsx";
import { Announcements } from "./parts/announce.tsx";
import { Arrival, OfferDialog, RefusalDialog } from "./parts/arrival.tsx";
import { useCurrentInView } from "./parts/current-in-view.ts";
import { LoadState, NotFound } from "./parts/faults.tsx";
import { setSite, usePageTitle } from "./parts/heading.tsx";
import { NewSecrets } from "./parts/secret.tsx";
import { SessionWarning } from "./parts/session-warning.tsx";
import { failuresHref, parseRoute, type Route, usageHref, workspaceHistoryHref } from "./route.ts";
import {
  hasStoredDraft,
  isReadOnly,
  readReturnUrl,
  readSession,
  readSessionEnd,
  readWorkspaceId,
  resume,
  type SessionState,
  watchSession,
} from "./session.ts";
import { chooseLanguage, language, languages, t } from "./text.ts";
import { chooseTheme, readTheme, THEMES, type Theme } from "./theme.ts";
import { sumFailures } from "./webhook.ts";

const PRODUCT = platformName || t.product;

/** Renders the portal: the place that the address names or, without a session, a note. */
export function App({ icon }: { icon: string }) {
  const [session, setSession] = useState(readSession);
  const [route, setRoute] = useState(() => parseRoute(location.hash));
  useEffect(() => {
    const follow = () => setRoute(parseRoute(location.hash));
    watchSession(() => setSession(readSession()));
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  const { state } = session;
  return (
    <>
      <button
        type="button"
        class="skip"
        onClick={() => document.getElementById("content")?.focus()}
      >
        {t.skip}
      </button>
      {state === "open" ? (
        <>
          <Portal key={readWorkspaceId()} session={session} route={route} icon={icon} />
          {session.link && <Arrival link={session.link} isHidden />}
        </>
      ) : (
        <>
          <Bar icon={icon} />
          <main id="content" tabIndex={-1}>
            {state !== "opening" && state !== "asking" && <Closed state={state} />}
            {state === "opening" && session.link && <Arrival link={session.link} />}
          </main>
        </>
      )}
      <Announcements />
      <NewSecrets />
    </>
  );
}

/** Explains why nothing is shown, and leads to the app, which opens the portal. */
function Closed({ state }: { state: Exclude<SessionState, "open" | "opening" | "asking"> }) {
  const { title, text } = t.session[state];
  const isKept = state === "ended" && hasStoredDraft();
  const app = readReturnUrl();
  setSite(PRODUCT);
  usePageTitle(title);
  return (
    <div class="closed" role="alert">
      <h1>{title}</h1>
      <p class="lead">{text}</p>
      {isKept && <p class="lead">{t.session.kept}</p>}
      <div class="buttons">
        {state === "withdrawn" && (
          <button type="button" onClick={resume}>
            {t.retry}
          </button>
        )}
        {app && (
          <a class="button primary" href={app}>
            {t.session.toApp}
          </a>
        )}
      </div>
    </div>
  );
}

const WORKSPACE_REFRESH_MS = 300_000;

interface PortalProps {
  session: ReturnType<typeof readSession>;
  route: Route;
  icon: string;
}

function Portal({ session: { offer, refusal }, route, icon }: PortalProps) {
  // It belongs to the workspace that was open before.
  useState(forgetLoaded);
  useSessionEnd();
  const loaded = useLoad(readWorkspace, "workspace", WORKSPACE_REFRESH_MS);
  const workspace = loaded.data;
  setSite(workspace ? `${workspace.name} – ${PRODUCT}` : PRODUCT);
  return (
    <>
      <Bar icon={icon} workspace={workspace} route={route} />
      <main id="content" tabIndex={-1}>
        <SessionWarning />
        {isReadOnly() && <p class="note read-only">{t.readOnly}</p>}
        {workspace ? <Place workspace={workspace} route={route} /> : <LoadState loaded={loaded} />}
      </main>
      {workspace && (
        <footer>
          <p>
            {t.sessionUntil(formatTime(readSessionEnd()))}. {t.timeZone(timeZone)}
          </p>
        </footer>
      )}
      {workspace && offer && <OfferDialog offer={offer} current={workspace.name} />}
      {workspace && refusal && <RefusalDialog refusal={refusal} current={workspace.name} />}
    </>
  );
}

/** Asks the server when the session has ended, so that the page does not go on as if it were open. */
function useSessionEnd(): void {
  const end = readSessionEnd();
  useEffect(() => {
    const timer = setTimeout(reloadAll, Date.parse(end) - Date.now() + 1_000);
    return () => clearTimeout(timer);
  }, [end]);
}

function Place({ route, workspace }: { route: Route; workspace: Workspace }) {
  switch (route.page) {
    case "webhooks":
      return <Home workspace={workspace} />;
    case "webhook":
      return <Webhook key={route.id} workspace={workspace} {...route} />;
    case "subscribe":
      return <Subscribe workspace={workspace} />;
    case "events":
      return <Events workspace={workspace} />;
    case "failures":
      return <Failures query={route.query} workspace={workspace} />;
    case "history":
      return <WorkspaceHistory cursor={route.query.get("cursor")} />;
    case "usage":
      return <Usage cursor={route.query.get("cursor")} />;
    case "unknown":
      return <NotFound />;
  }
}

function Bar(props: { icon: string; workspace?: Workspace | null; route?: Route }) {
  const { icon, workspace, route } = props;
  const app = readReturnUrl();
  const row = useCurrentInView<HTMLElement>(`${workspace?.workspaceId} ${route?.page}`);
  const name = [platformName, workspace?.name].filter(Boolean).join(" · ") || t.product;
  const link = (href: string, text: string, isHere: boolean) => (
    <a href={href} aria-current={isHere ? "page" : undefined}>
      {text}
    </a>
  );
  return (
    <header class="bar">
      <p class="brand">
        {platformName === "" && <img src={icon} alt="" width="26" height="26" />}
        {app ? (
          <a href={app} title={t.backToApp}>
            ← {name}
          </a>
        ) : (
          <span>{name}</span>
        )}
      </p>
      {workspace && route && (
        <nav ref={row} aria-label={t.sections}>
          {link(
            "#/webhooks",
            t.webhooks,
            ["webhooks", "webhook", "subscribe"].includes(route.page),
          )}
          <FailuresLink isHere={route.page === "failures"} />
          {link("#/events", t.catalogue.title, route.page === "events")}
          {link(usageHref(null), t.usage, route.page === "usage")}
          {link(workspaceHistoryHref(null), t.history.title, route.page === "history")}
          <a href="/docs" target="_blank" rel="noopener noreferrer" hreflang="en">
            {t.docs}
          </a>
        </nav>
      )}
      <Preferences />
    </header>
  );
}

const FAILURES_REFRESH_MS = 60_000;

/** Links to the failures, with the number of deliveries that are failing now. */
function FailuresLink({ isHere }: { isHere: boolean }) {
  const state = new URLSearchParams({ state: "retrying" });
  const { data } = useLoad(() => countFailures(state), "failing", FAILURES_REFRESH_MS);
  const failing = sumFailures(data ?? []);
  return (
    <a href={failuresHref()} aria-current={isHere ? "page" : undefined}>
      {t.failures.title}
      {failing.retrying > 0 && (
        <>
          {" "}
          <span class="count bad">{t.failures.count(failing.retrying, failing.hasMore)}</span>
        </>
      )}
    </a>
  );
}

/** The language and the theme of the page. */
function Preferences() {
  const [theme, setTheme] = useState(readTheme);
  return (
    <div class="preferences">
      <select
        aria-label={t.theme}
        value={theme}
        onInput={({ currentTarget }) => {
          const chosen = currentTarget.value as Theme;
          chooseTheme(chosen);
          setTheme(chosen);
        }}
      >
        {THEMES.map((name) => (
          <option key={name} value={name}>
            {t.themes[name]}
          </option>
        ))}
      </select>
      <select
        aria-label={t.language}
        value={language}
        onInput={({ currentTarget }) => chooseLanguage(currentTarget.value)}
      >
        {languages.map(({ name, languageName }) => (
          <option key={name} value={name} lang={name}>
            {languageName}
          </option>
        ))}
      </select>
    </div>
  );
}
