import vue from "@vitejs/plugin-vue";
import { defineConfig } from "vite";

// The server's policy forbids inline code and `data:` scripts, so every script stays a file, with a
// name that changes with its content. The development server forwards other requests to a real
// server.
const api = process.env.RINGWALL_URL ?? "http://127.0.0.1:8003";
const families = ["/api", "/v1", "/sandbox", "/skills", "/settings", "/metrics", "/healthz"];

export default defineConfig({
  plugins: [vue()],
  build: {
    assetsInlineLimit: 0,
    target: "es2022",
    chunkSizeWarningLimit: 600,
    modulePreload: { polyfill: false },
  },
  server: {
    proxy: {
      ...Object.fromEntries(families.map((family) => [family, { target: api, ws: family === "/api" }])),
      "/ws": { target: api, ws: true },
    },
  },
});
