// Polls while the page is visible; a page in the background sends no requests.

import { onBeforeUnmount, onMounted, ref, type Ref } from "vue";

import { Problem } from "./api";
import { isWord, language, t } from "./words";

export interface Asking {
  /** Nothing has come yet. */
  isLoading: Ref<boolean>;
  /** What went wrong the last time, in words. */
  failure: Ref<string>;
  again: () => Promise<void>;
}

/** What went wrong, as a sentence: in the reader's language where the page knows what it is, with the server's words behind it. */
export function sentence(error: unknown): string {
  if (!(error instanceof Problem)) return error instanceof Error ? error.message : String(error);
  if (error.code === "UNREACHABLE") return t("error.unreachable");
  const told = error.hint ? `${error.message} – ${error.hint}` : error.message;
  const keys = [`error.${error.code}`, `error.${error.status}`];
  if (told) return translated(keys, told);
  const known = keys.find(isWord);
  return known ? t(known) : t("error.other", { status: error.status });
}

/** The page's own word for what the server tells, with the server's behind it. English needs none. */
export function translated(keys: string[], told: string): string {
  const known = language.value === "en" ? undefined : keys.find(isWord);
  return known ? `${t(known)}（${told}）` : told;
}

/** Does it now, when told, and every so many milliseconds; never twice at the same time. Whoever asks while it is being done
 * may have changed what is asked for: it is done once more afterwards. */
export function asking(act: () => Promise<void>, every?: number): Asking {
  const isLoading = ref(true);
  const failure = ref("");
  let timer: number | undefined;
  let running: Promise<void> | null = null;
  let next: Promise<void> | null = null;
  const once = async () => {
    try {
      await act();
      failure.value = "";
    } catch (error) {
      failure.value = sentence(error);
    } finally {
      isLoading.value = false;
      running = null;
    }
  };
  const begin = () => (running = once());
  const again = () => {
    if (!running) return begin();
    return (next ??= running.then(() => {
      next = null;
      return begin();
    }));
  };
  onMounted(() => {
    if (!running) void begin();
    if (every === undefined) return;
    timer = window.setInterval(() => {
      if (document.visibilityState === "visible" && !running) void begin();
    }, every);
  });
  onBeforeUnmount(() => window.clearInterval(timer));
  return { isLoading, failure, again };
}
