// State of requests for components: polling, actions with an error, further pages, and error texts.

import { onBeforeUnmount, onMounted, ref, type Ref } from "vue";

import { Problem, type Page } from "./api";
import { isTextKey, language, t } from "./texts";

/** An error as a sentence in the reader's language. */
export function sentence(error: unknown): string {
  if (!(error instanceof Problem)) return error instanceof Error ? error.message : String(error);
  if (error.code === "UNREACHABLE") return t("error.unreachable");
  const message = error.hint ? `${error.message} – ${error.hint}` : error.message;
  const keys = [`error.${error.code}`, `error.${error.status}`];
  if (message) return translated(keys, message);
  const known = keys.find(isTextKey);
  return known ? t(known) : t("error.other", { status: error.status });
}

/** The first known text, followed by the server's message. In English the server's message alone. */
export function translated(keys: string[], message: string): string {
  const known = language.value === "en" ? undefined : keys.find(isTextKey);
  return known ? `${t(known)}（${message}）` : message;
}

export interface Request {
  /** True until the first response. */
  isLoading: Ref<boolean>;
  /** The error of the last request, or "". */
  failure: Ref<string>;
  reload: () => Promise<void>;
}

/**
 * Runs `load` when the component is mounted, on `reload`, and every `period` milliseconds while the page is visible. Never
 * runs twice at the same time: a `reload` during a run starts one more run after it, because the parameters may have changed.
 */
export function useRequest(load: () => Promise<void>, period?: number): Request {
  const isLoading = ref(true);
  const failure = ref("");
  let timer: number | undefined;
  let running: Promise<void> | null = null;
  let next: Promise<void> | null = null;
  const once = async () => {
    try {
      await load();
      failure.value = "";
    } catch (error) {
      failure.value = sentence(error);
    } finally {
      isLoading.value = false;
      running = null;
    }
  };
  const start = () => (running = once());
  const reload = () => {
    if (!running) return start();
    return (next ??= running.then(() => {
      next = null;
      return start();
    }));
  };
  onMounted(() => {
    if (!running) void start();
    if (period === undefined) return;
    timer = window.setInterval(() => {
      if (document.visibilityState === "visible" && !running) void start();
    }, period);
  });
  onBeforeUnmount(() => window.clearInterval(timer));
  return { isLoading, failure, reload };
}

/** Runs actions of a user. `problem` holds the error of the last one. */
export function useAction() {
  const problem = ref("");
  const isBusy = ref(false);
  async function run(act: () => Promise<unknown>): Promise<void> {
    isBusy.value = true;
    problem.value = "";
    try {
      await act();
    } catch (error) {
      problem.value = sentence(error);
    } finally {
      isBusy.value = false;
    }
  }
  return { problem, isBusy, run };
}

/** Fetches the page at `next` and appends it, unless the list was reloaded meanwhile. */
export async function loadMore<T>(
  next: Ref<string | null>,
  failure: Ref<string>,
  fetchPage: (cursor: string) => Promise<Page<T>>,
  append: (items: T[]) => void,
): Promise<void> {
  const cursor = next.value;
  if (!cursor) return;
  try {
    const page = await fetchPage(cursor);
    if (cursor !== next.value) return;
    append(page.items);
    next.value = page.next;
  } catch (error) {
    failure.value = sentence(error);
  }
}
