import { defineConfig } from "vite";

// The policy of the pages allows no inline script or style, so nothing may be inlined.
export default defineConfig({
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    target: ["chrome123", "firefox128", "safari17.5"],
    cssTarget: ["chrome123", "firefox128", "safari17.5"],
    modulePreload: { polyfill: false },
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 400,
  },
  server: {
    host: "127.0.0.1",
    proxy: Object.fromEntries(["/api", "/metrics", "/openapi.json"].map((path) => [path, process.env["SLUICE"] ?? "http://127.0.0.1:7070"])),
  },
});
