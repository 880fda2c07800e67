// The texts in two languages. The English table defines the keys; the compiler checks that the
// Chinese table has the same ones.

import { watch } from "vue";

import { stored } from "../storage";
import { en } from "./en";
import { zh } from "./zh";

export type Language = "en" | "zh";
export type TextKey = keyof typeof en;

const preferred: Language = navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en";
export const language = stored<Language>("language", preferred, ["en", "zh"]);

watch(
  language,
  (chosen) => {
    document.documentElement.lang = chosen === "zh" ? "zh-CN" : "en";
  },
  { immediate: true },
);

const tables: Record<Language, Record<TextKey, string>> = { en, zh };

/** The text of a key in the current language, with each `{name}` replaced by its value. */
export function t(key: TextKey, values: Record<string, string | number> = {}): string {
  return tables[language.value][key].replace(/\{(\w+)\}/g, (whole, name: string) => String(values[name] ?? whole));
}

export function isTextKey(text: string): text is TextKey {
  return Object.hasOwn(en, text);
}

/** The text of the key `prefix.name`, or `name` itself if there is no such key. */
export function nameOf(prefix: string, name: string): string {
  const key = `${prefix}.${name}`;
  return isTextKey(key) ? t(key) : name;
}

function toDate(at: number | string | null | undefined): Date | null {
  if (at === null || at === undefined || at === "") return null;
  const date = new Date(at);
  return Number.isNaN(date.getTime()) ? null : date;
}

export function milliseconds(at: number | string | null | undefined): number {
  return toDate(at)?.getTime() ?? 0;
}

/** A time in the reader's time zone; without the date if it is today. */
export function time(at: number | string | null | undefined): string {
  const date = toDate(at);
  if (!date) return "–";
  const locale = language.value === "zh" ? "zh-CN" : "en-GB";
  const now = new Date();
  const clock: Intl.DateTimeFormatOptions = { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false };
  if (now.toDateString() === date.toDateString()) return date.toLocaleTimeString(locale, clock);
  const year = now.getFullYear() === date.getFullYear() ? {} : ({ year: "numeric" } as const);
  return date.toLocaleString(locale, { ...year, month: "short", day: "numeric", ...clock });
}

/** A number in the format of the current language. */
export function number(count: number): string {
  return count.toLocaleString(language.value === "zh" ? "zh-CN" : "en-GB");
}

export function duration(milliseconds: number | null | undefined): string {
  if (milliseconds === null || milliseconds === undefined) return "–";
  if (milliseconds < 1000) return `${milliseconds} ms`;
  if (milliseconds < 60_000) return `${(milliseconds / 1000).toFixed(1)} s`;
  return `${Math.floor(milliseconds / 60_000)} min ${Math.round((milliseconds % 60_000) / 1000)} s`;
}
