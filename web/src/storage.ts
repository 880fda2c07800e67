// A value that the browser keeps between visits, such as the language. Without storage the page still works.

import { ref, watch, type Ref } from "vue";

export function stored<T extends string>(name: string, fallback: T, allowed: readonly T[]): Ref<T> {
  const key = `ringwall.${name}`;
  let found: string | null = null;
  try {
    found = localStorage.getItem(key);
  } catch {
    // The browser forbids storage.
  }
  const value = ref(allowed.includes(found as T) ? (found as T) : fallback) as Ref<T>;
  watch(value, (chosen) => {
    try {
      localStorage.setItem(key, chosen);
    } catch {
      // The choice then lasts until the page is closed.
    }
  });
  return value;
}
