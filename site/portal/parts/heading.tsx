import type { ComponentChildren } from "preact";
import { useEffect, useRef } from "preact/hooks";
import { savedPosition } from "../route.ts";

/** The end of every page title: the workspace and the product. */
let site = "";

export function setSite(name: string): void {
  site = name;
}

/** Gives the browser's tab a title. */
export function usePageTitle(title: string): void {
  useEffect(() => {
    document.title = [title, site].filter(Boolean).join(" – ");
  }, [title, site]);
}

/** Whether the reader came here from another place, and whether its heading has the focus already. */
let hasMoved = false;
let isFocusDue = false;
addEventListener("hashchange", () => {
  hasMoved = true;
  isFocusDue = true;
});

interface Props {
  /** The title of the browser's tab. */
  title: string;
  children: ComponentChildren;
}

/**
 * The heading of a place. It takes the focus when the reader comes from another place, so that the
 * keyboard and screen readers start at the top. The place is scrolled to where the reader left it.
 */
export function Heading({ title, children }: Props) {
  const heading = useRef<HTMLHeadingElement>(null);
  usePageTitle(title);
  useEffect(() => {
    // The heading of a place that was loading had the focus, which went with it.
    const isFocusLost = hasMoved && document.activeElement === document.body;
    if (isFocusDue || isFocusLost) heading.current?.focus({ preventScroll: true });
    isFocusDue = false;
    scrollTo({ top: savedPosition() ?? 0, behavior: "instant" });
  }, []);
  return (
    <h1 ref={heading} tabIndex={-1}>
      {children}
    </h1>
  );
}
