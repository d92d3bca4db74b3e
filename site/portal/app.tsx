import { useEffect, useState } from "preact/hooks";
import type { WorkspaceDetails as Workspace } from "../../src/workspaces/views.ts";
import { readWorkspace } from "./api.ts";
import { platformName } from "./deployment.ts";
import { formatTime, timeZone } from "./format.ts";
import { useLoad } from "./load.ts";
import { Delivery } from "./pages/delivery.tsx";
import { Events } from "./pages/events.tsx";
import { Subscribe } from "./pages/subscribe.tsx";
import { Usage } from "./pages/usage.tsx";
import { Webhook } from "./pages/webhook.tsx";
import { Webhooks } from "./pages/webhooks.tsx";
import { Announcements } from "./parts/announce.tsx";
import { Arrival, OfferDialog, RefusalDialog } from "./parts/arrival.tsx";
import { LoadState, NotFound } from "./parts/faults.tsx";
import { parseRoute, type Route, usageHref } from "./route.ts";
import { readSession, readSessionEnd, resume, type SessionState, watchSession } from "./session.ts";
import { chooseLanguage, otherLanguages, t } from "./text.ts";

/** The portal: who may see it, and the place named by the address. */
export function App({ icon }: { icon: string }) {
  const [session, setSession] = useState(readSession);
  const [route, setRoute] = useState(() => parseRoute(location.hash));
  useEffect(() => {
    const follow = () => setRoute(parseRoute(location.hash));
    watchSession(() => setSession(readSession()));
    addEventListener("hashchange", follow);
    return () => removeEventListener("hashchange", follow);
  }, []);
  return (
    <>
      <button
        type="button"
        class="skip"
        onClick={() => document.getElementById("content")?.focus()}
      >
        {t.skip}
      </button>
      {session.state === "open" ? (
        <>
          <Portal key={session.token} {...{ session, route, icon }} />
          {session.link && <Arrival link={session.link} isHidden />}
        </>
      ) : (
        <>
          <Bar icon={icon} />
          <main id="content" tabIndex={-1}>
            {session.state !== "opening" && <Closed state={session.state} />}
            {session.state === "opening" && session.link && <Arrival link={session.link} />}
          </main>
        </>
      )}
      <Announcements />
    </>
  );
}

function Closed({ state }: { state: Exclude<SessionState, "open" | "opening"> }) {
  const { title, text } = t.session[state];
  return (
    <div class="closed" role="alert">
      <h1>{title}</h1>
      <p class="lead">{text}</p>
      {state === "withdrawn" && (
        <button type="button" onClick={resume}>
          {t.retry}
        </button>
      )}
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
  const loaded = useLoad(readWorkspace, "", WORKSPACE_REFRESH_MS);
  const workspace = loaded.data;
  const product = platformName || t.product;
  useEffect(() => {
    document.title = workspace ? `${workspace.name} – ${product}` : product;
  }, [workspace?.name]);
  return (
    <>
      <Bar icon={icon} workspace={workspace} route={route} />
      <main id="content" tabIndex={-1}>
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

function Place({ route, workspace }: { route: Route; workspace: Workspace }) {
  switch (route.page) {
    case "webhooks":
      return <Webhooks workspace={workspace} />;
    case "webhook":
      return <Webhook key={route.id} workspace={workspace} {...route} />;
    case "delivery":
      return <Delivery key={`${route.id} ${route.eventId}`} {...{ workspace, ...route }} />;
    case "subscribe":
      return <Subscribe workspace={workspace} />;
    case "events":
      return <Events workspace={workspace} />;
    case "usage":
      return <Usage cursor={route.query.get("cursor")} />;
    case "unknown":
      return <NotFound />;
  }
}

function Bar(props: { icon: string; workspace?: Workspace | null; route?: Route }) {
  const { icon, workspace, route } = props;
  const link = (href: string, text: string, isHere: boolean) => (
    <a href={href} aria-current={isHere ? "page" : undefined}>
      {text}
    </a>
  );
  return (
    <header class="bar">
      <p class="brand">
        {platformName === "" && <img src={icon} alt="" width="26" height="26" />}
        <span>{[platformName, workspace?.name].filter(Boolean).join(" · ") || t.product}</span>
      </p>
      {workspace && route && (
        <nav aria-label={t.sections}>
          {link("#/webhooks", t.subscriptions, !["events", "usage"].includes(route.page))}
          {link("#/events", t.catalogue.title, route.page === "events")}
          {link(usageHref(null), t.usage, route.page === "usage")}
          <a href="/docs" target="_blank" rel="noopener noreferrer">
            {t.docs}
          </a>
        </nav>
      )}
      <div class="languages">
        {otherLanguages.map(({ name, languageName }) => (
          <button
            key={name}
            type="button"
            class="quiet"
            lang={name}
            onClick={() => chooseLanguage(name)}
          >
            {languageName}
          </button>
        ))}
      </div>
    </header>
  );
}
