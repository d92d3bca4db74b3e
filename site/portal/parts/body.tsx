import { useState } from "preact/hooks";
import { t } from "../text.ts";
import { Copy } from "./basics.tsx";

/** A JSON token: a key, a string, a number or a word. */
const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|\b(?:true|false|null|-?\d[\d.eE+-]*)\b/g;

/** Shows a body, formatted; that of a delivery, on request, exactly as it is signed. */
export function Body({ body, isExample = false }: { body: string; isExample?: boolean }) {
  const [isExact, setExact] = useState(false);
  const pretty = layOut(body);
  const choice = (exact: boolean, label: string) => (
    <button type="button" aria-pressed={isExact === exact} onClick={() => setExact(exact)}>
      {label}
    </button>
  );
  return (
    <div class="body">
      <div class="body-bar">
        {isExample ? (
          <span class="hint">{t.catalogue.example}</span>
        ) : (
          <div class="choices">
            {choice(false, t.delivery.pretty)}
            {choice(true, t.delivery.exact)}
          </div>
        )}
        <Copy text={isExact ? body : pretty} />
      </div>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reached by the keyboard. */}
      <pre tabIndex={0} class={isExact ? "wrapped" : ""}>
        <code>{isExact ? body : colour(pretty)}</code>
      </pre>
      {isExact && <p class="hint">{t.delivery.exactHint}</p>}
    </div>
  );
}

function layOut(body: string): string {
  try {
    return JSON.stringify(JSON.parse(body), null, 2);
  } catch {
    return body;
  }
}

function colour(json: string) {
  const parts = [];
  let end = 0;
  for (const match of json.matchAll(TOKEN)) {
    const [whole, text, colon] = match;
    const token = text ?? whole;
    const tone = text === undefined ? "literal" : colon ? "attr" : "string";
    parts.push(json.slice(end, match.index), <span class={`hljs-${tone}`}>{token}</span>);
    end = match.index + token.length;
  }
  return [...parts, json.slice(end)];
}
