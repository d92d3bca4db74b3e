import { useEffect, useState } from "preact/hooks";
import { MINUTE_MS } from "../../../src/contract/time.ts";
import { formatTimeOfDay } from "../format.ts";
import { readReturnUrl, readSession, readSessionEnd } from "../session.ts";
import { t } from "../text.ts";

/** How long before the end of a session the reader is warned. */
const WARNING_MS = 2 * MINUTE_MS;
/** How often the page looks at its clock, which timers do not follow while a computer sleeps. */
const LOOK_MS = 5_000;

/**
 * Warns that the session is about to end, and says how to go on. A dialog has a warning of its own, because the reader
 * can neither read nor reach what is behind it.
 */
export function SessionWarning() {
  const [now, setNow] = useState(Date.now);
  const { token } = readSession();
  const end = Date.parse(readSessionEnd());
  useEffect(() => {
    const timer = setInterval(() => setNow(Date.now()), LOOK_MS);
    return () => clearInterval(timer);
  }, []);
  const app = readReturnUrl();
  const isNear = token !== null && now >= end - WARNING_MS;
  return (
    <div role="alert">
      {isNear && (
        <div class="note warn session-warning">
          <p>{t.session.ending(formatTimeOfDay(end))}</p>
          {app && (
            <p>
              <a href={app} target="_blank" rel="noopener noreferrer">
                {t.session.toApp}
              </a>
            </p>
          )}
        </div>
      )}
    </div>
  );
}
