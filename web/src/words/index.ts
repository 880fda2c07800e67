// The page's texts in two languages. A key is a key of the English table; the compiler checks that
// the Chinese table has the same keys.

import { watch } from "vue";

import { kept } from "../kept";
import { en } from "./en";
import { zh } from "./zh";

export type Language = "en" | "zh";
export type Word = keyof typeof en;

const usual: Language = navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en";
export const language = kept<Language>("language", usual, ["en", "zh"]);

watch(
  language,
  (chosen) => {
    document.documentElement.lang = chosen === "zh" ? "zh-CN" : "en";
  },
  { immediate: true },
);

const tables: Record<Language, Record<Word, string>> = { en, zh };

/** A text in the language of the moment; `{name}` in it is replaced. */
export function t(word: Word, values: Record<string, string | number> = {}): string {
  return tables[language.value][word].replace(/\{(\w+)\}/g, (whole, name: string) => String(values[name] ?? whole));
}

export function isWord(text: string): text is Word {
  return Object.hasOwn(en, text);
}

/** A word of the interface where there is one; the server's own otherwise. */
export function named(prefix: string, text: string): string {
  const key = `${prefix}.${text}`;
  return isWord(key) ? t(key) : text;
}

function moment(at: number | string | null | undefined): Date | null {
  if (at === null || at === undefined || at === "") return null;
  const date = new Date(at);
  return Number.isNaN(date.getTime()) ? null : date;
}

export function milliseconds(at: number | string | null | undefined): number {
  return moment(at)?.getTime() ?? 0;
}

/** A moment in the reader's own time zone. */
export function time(at: number | string | null | undefined): string {
  const date = moment(at);
  if (!date) return "–";
  const locale = language.value === "zh" ? "zh-CN" : "en-GB";
  const now = new Date();
  const clock: Intl.DateTimeFormatOptions = { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false };
  if (now.toDateString() === date.toDateString()) return date.toLocaleTimeString(locale, clock);
  const year = now.getFullYear() === date.getFullYear() ? {} : ({ year: "numeric" } as const);
  return date.toLocaleString(locale, { ...year, month: "short", day: "numeric", ...clock });
}

/** A count as it is written in the reader's language. */
export function number(count: number): string {
  return count.toLocaleString(language.value === "zh" ? "zh-CN" : "en-GB");
}

export function duration(milliseconds: number | null | undefined): string {
  if (milliseconds === null || milliseconds === undefined) return "–";
  if (milliseconds < 1000) return `${milliseconds} ms`;
  if (milliseconds < 60_000) return `${(milliseconds / 1000).toFixed(1)} s`;
  return `${Math.floor(milliseconds / 60_000)} min ${Math.round((milliseconds % 60_000) / 1000)} s`;
}
