import { render } from "preact";
import { App } from "./app.tsx";
import { platformColor } from "./deployment.ts";
import { rememberPositions } from "./route.ts";
import { openSession } from "./session.ts";
import { language } from "./text.ts";
import { readTheme } from "./theme.ts";
import { keepTranslatable } from "./translatable.ts";

const root = document.getElementById("portal");
const icon = document.querySelector<HTMLLinkElement>("link[rel=icon]");
if (!root || !icon) throw new Error("the page is not whole");
// The session is opened first, because that removes the token from the address.
openSession();
document.documentElement.lang = language;
document.documentElement.dataset.theme = readTheme();
if (platformColor !== "") {
  document.documentElement.classList.add("branded");
  document.documentElement.style.setProperty("--brand", platformColor);
  icon.href = icon.href.replace(/%23[\da-f]{6}/i, encodeURIComponent(platformColor));
}
rememberPositions();
keepTranslatable();
render(<App icon={icon.href} />, root);
