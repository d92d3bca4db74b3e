/** The themes: that of the reader's system, or a chosen one. */
export const THEMES = ["auto", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];

const KEPT_AS = "portal-theme";

/** Reads the reader's choice in this browser. */
export function readTheme(): Theme {
  try {
    const stored = localStorage.getItem(KEPT_AS);
    return THEMES.find((theme) => theme === stored) ?? "auto";
  } catch {
    return "auto";
  }
}

/** Shows the page in a theme, and remembers it in this browser. */
export function chooseTheme(theme: Theme): void {
  document.documentElement.dataset.theme = theme;
  try {
    localStorage.setItem(KEPT_AS, theme);
  } catch {
    // If the browser blocks storage, the choice lasts until the page is left.
  }
}
