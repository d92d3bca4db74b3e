import { useEffect, useRef } from "preact/hooks";
import { t } from "../text.ts";

export interface MenuItem {
  label: string;
  isDangerous?: boolean;
  choose(): void;
}

/** Further actions behind one button. Escape, a choice and a click elsewhere close it. */
export function Menu({ items }: { items: MenuItem[] }) {
  const menu = useRef<HTMLDetailsElement>(null);
  const close = () => menu.current?.removeAttribute("open");
  useEffect(() => {
    const closeOutside = ({ target }: Event) => {
      if (!menu.current?.contains(target as Node)) close();
    };
    addEventListener("pointerdown", closeOutside);
    addEventListener("focusin", closeOutside);
    return () => {
      removeEventListener("pointerdown", closeOutside);
      removeEventListener("focusin", closeOutside);
    };
  }, []);
  const choose = (item: MenuItem) => {
    close();
    // A dialog returns the focus to what had it, and the items are hidden then.
    menu.current?.querySelector("summary")?.focus();
    item.choose();
  };
  return (
    <details
      ref={menu}
      class="menu"
      onKeyDown={(event) => {
        if (event.key !== "Escape" || !menu.current?.open) return;
        close();
        menu.current.querySelector("summary")?.focus();
      }}
    >
      <summary class="button">{t.more}</summary>
      <ul>
        {items.map((item) => (
          <li key={item.label}>
            <button
              type="button"
              class={item.isDangerous ? "danger-quiet" : ""}
              onClick={() => choose(item)}
            >
              {item.label}
            </button>
          </li>
        ))}
      </ul>
    </details>
  );
}
