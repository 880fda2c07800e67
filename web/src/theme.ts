// Light or dark mode: the system's choice unless the user chose.

import { watch } from "vue";

import { stored } from "./storage";

export type Theme = "system" | "light" | "dark";
export const THEMES: readonly Theme[] = ["system", "light", "dark"];
export const theme = stored<Theme>("theme", "system", THEMES);

const prefersDark = matchMedia("(prefers-color-scheme: dark)");

export function isDark(): boolean {
  return theme.value === "dark" || (theme.value === "system" && prefersDark.matches);
}

function apply(): void {
  document.documentElement.dataset.theme = isDark() ? "dark" : "light";
}

prefersDark.addEventListener("change", apply);
watch(theme, apply, { immediate: true });
