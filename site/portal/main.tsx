import { render } from "preact";
import { App } from "./app.tsx";
import { platformColor, platformName } from "./deployment.ts";
import { openSession } from "./session.ts";
import { language, t } from "./text.ts";

const root = document.getElementById("portal");
const icon = document.querySelector<HTMLLinkElement>("link[rel=icon]");
if (!root || !icon) throw new Error("the page is not whole");
// Before anything else: removes the token from the address.
openSession();
document.documentElement.lang = language;
document.title = platformName || t.product;
if (platformColor !== "") {
  document.documentElement.classList.add("branded");
  document.documentElement.style.setProperty("--brand", platformColor);
  icon.href = icon.href.replace(/%23[\da-f]{6}/i, encodeURIComponent(platformColor));
}
render(<App icon={icon.href} />, root);
