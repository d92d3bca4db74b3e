/** Copies the code of a block. */
for (const button of document.querySelectorAll("button.copy"))
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(button.closest("figure").querySelector("code").textContent);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1_500);
  });

/** On a narrow screen the contents are folded, and fold again once an entry is chosen. */
const contents = document.querySelector(".contents details");
const narrow = matchMedia("(width < 1000px)");
const fold = () => (contents.open = !narrow.matches);
narrow.addEventListener("change", fold);
fold();
contents.addEventListener("click", (event) => {
  if (event.target.closest("a") && narrow.matches) contents.open = false;
});

/** Marks the section being read. */
const links = new Map(
  [...document.querySelectorAll(".contents a")].map((link) => [link.hash.slice(1), link]),
);
const seen = new IntersectionObserver(
  (entries) => {
    const entry = entries.find(({ isIntersecting }) => isIntersecting);
    if (!entry) return;
    for (const link of links.values()) link.removeAttribute("aria-current");
    const link = links.get(entry.target.id);
    link.setAttribute("aria-current", "true");
    if (!narrow.matches) link.scrollIntoView({ block: "nearest" });
  },
  { rootMargin: "-15% 0px -75% 0px" },
);
for (const id of links.keys()) seen.observe(document.getElementById(id));

/** Sends the requests of the forms, with the key that was typed in; it is not stored anywhere. */
const key = document.getElementById("key");
for (const form of document.querySelectorAll(".try form"))
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const result = form.querySelector(".result");
    if (key.value === "") {
      result.textContent = "Enter your API key first, at the top of the reference.";
      key.focus();
      return;
    }
    const url = new URL(form.dataset.path, location.origin);
    for (const input of form.querySelectorAll("input"))
      if (input.dataset.in === "path")
        url.pathname = decodeURI(url.pathname).replace(
          `{${input.name}}`,
          encodeURIComponent(input.value),
        );
      else if (input.value !== "") url.searchParams.set(input.name, input.value);
    const body = form.elements.body?.value;
    result.textContent = "…";
    try {
      const answer = await fetch(url, {
        method: form.dataset.method,
        headers: {
          Authorization: `Bearer ${key.value}`,
          ...(body && { "Content-Type": "application/json" }),
        },
        ...(body && { body }),
      });
      show(result, answer, await answer.text());
    } catch {
      result.textContent = "No response received.";
    }
  });

function show(result, answer, text) {
  const status = document.createElement("p");
  const badge = document.createElement("span");
  badge.className = answer.ok ? "status good" : "status";
  badge.textContent = answer.status;
  const left = answer.headers.get("X-RateLimit-Remaining");
  const name = answer.headers.get("X-Request-Id");
  status.append(badge, ` ${left} requests left · X-Request-Id ${name}`);
  const block = document.createElement("pre");
  block.tabIndex = 0;
  block.textContent = text && JSON.stringify(JSON.parse(text), null, 2);
  result.replaceChildren(status, ...(text ? [block] : []));
}
