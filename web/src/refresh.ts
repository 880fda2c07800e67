// Looking again and again while somebody looks: a page in the background asks for nothing.

import { onBeforeUnmount, onMounted, ref, type Ref } from "vue";

import { Problem } from "./api";
import { t } from "./words";

export interface Asking {
  /** Nothing has come yet. */
  isLoading: Ref<boolean>;
  /** What went wrong the last time, in words. */
  failure: Ref<string>;
  again: () => Promise<void>;
}

/** What went wrong, as a sentence. */
export function sentence(error: unknown): string {
  if (error instanceof Problem) {
    if (error.code === "UNREACHABLE") return t("error.unreachable");
    return error.hint ? `${error.message} – ${error.hint}` : error.message;
  }
  return error instanceof Error ? error.message : String(error);
}

/** Does it now, when told, and every so many milliseconds; never twice at the same time. */
export function asking(act: () => Promise<void>, every?: number): Asking {
  const isLoading = ref(true);
  const failure = ref("");
  let timer: number | undefined;
  let running: Promise<void> | null = null;
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
  const again = () => (running ??= once());
  onMounted(() => {
    void again();
    if (every === undefined) return;
    timer = window.setInterval(() => {
      if (document.visibilityState === "visible") void again();
    }, every);
  });
  onBeforeUnmount(() => window.clearInterval(timer));
  return { isLoading, failure, again };
}
