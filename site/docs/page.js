// The reference checks its data with zod, which would try to compile code; the policy forbids that.
globalThis.__zod_globalConfig = { jitless: true };

const { createApiReference } = await import("%SCALAR%");

createApiReference("#reference", {
  url: "/openapi.json",
  // Nothing is fetched from, sent to or advertised for another host.
  telemetry: false,
  withDefaultFonts: false,
  showDeveloperTools: "never",
  hideClientButton: true,
  agent: { disabled: true },
  mcp: { disabled: true },
  // A key that is typed in lives as long as the page.
  persistAuth: false,
  authentication: { preferredSecurityScheme: "apiKey" },
  defaultHttpClient: { targetKey: "shell", clientKey: "curl" },
  defaultOpenAllTags: true,
  modelsSectionLabel: "Schemas",
  documentDownloadType: "direct",
  orderSchemaPropertiesBy: "preserve",
  orderRequiredPropertiesFirst: false,
  onLoaded: () => requestAnimationFrame(openIntroduction),
});

/** Shows the sections of the introduction in the sidebar; there is no option for it. */
function openIntroduction() {
  document.querySelector("aside li button[aria-expanded=false]")?.click();
}
