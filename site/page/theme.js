/** Applies the theme that was chosen for the docs; without one, the page follows the system. */
try {
  const theme = localStorage.getItem("docs-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // This browser stores nothing.
}
