import type { RefObject } from "preact";
import { useLayoutEffect, useRef } from "preact/hooks";

/** Scrolls a row of links, whose end is out of sight on a phone, to the current one. Returns the reference for it. */
export function useCurrentInView<T extends HTMLElement>(current: string): RefObject<T | null> {
  const row = useRef<T>(null);
  useLayoutEffect(() => {
    const scroll = () => {
      const link = row.current?.querySelector("[aria-current]");
      if (!row.current || !link) return;
      const [outer, inner] = [row.current.getBoundingClientRect(), link.getBoundingClientRect()];
      row.current.scrollLeft += inner.left + inner.width / 2 - (outer.left + outer.width / 2);
    };
    scroll();
    // A phone is turned, or the page is zoomed.
    addEventListener("resize", scroll);
    return () => removeEventListener("resize", scroll);
  }, [current]);
  return row;
}
