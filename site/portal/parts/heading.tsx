import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";

let isFirst = true;

/**
 * The heading of a place. It takes the focus when the reader comes from another place, so that the
 * keyboard and screen readers start at the top.
 */
export function Heading({ children }: { children: ComponentChildren }) {
  const heading = useRef<HTMLHeadingElement>(null);
  useEffect(() => {
    if (!isFirst) {
      heading.current?.focus({ preventScroll: true });
      scrollTo({ top: 0, behavior: "instant" });
    }
    isFirst = false;
  }, []);
  return (
    <h1 ref={heading} tabIndex={-1}>
      {children}
    </h1>
  );
}
