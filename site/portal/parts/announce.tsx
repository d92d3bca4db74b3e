import { useEffect, useState } from "preact/hooks";

const SHOWN_MS = 7_000;

let show = (_text: string) => {};

/** Announces the result of a reader's action; screen readers read it out. */
export function announce(text: string): void {
  show(text);
}

/** Shows announcements for some seconds. */
export function Announcements() {
  const [text, setText] = useState("");
  useEffect(() => {
    let timer = 0;
    show = (next) => {
      clearTimeout(timer);
      setText(next);
      timer = setTimeout(() => setText(""), SHOWN_MS);
    };
  }, []);
  return (
    <div class="announcements" role="status">
      {text && <p>{text}</p>}
    </div>
  );
}
