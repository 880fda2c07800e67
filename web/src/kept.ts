// Stores language and colours in the browser. Without storage the page still works.

import { ref, watch, type Ref } from "vue";

export function kept<T extends string>(name: string, usual: T, allowed: readonly T[]): Ref<T> {
  const key = `ringwall.${name}`;
  let found: string | null = null;
  try {
    found = localStorage.getItem(key);
  } catch {
    // The browser forbids storage.
  }
  const value = ref(allowed.includes(found as T) ? (found as T) : usual) as Ref<T>;
  watch(value, (chosen) => {
    try {
      localStorage.setItem(key, chosen);
    } catch {
      // The choice then lasts until the page is closed.
    }
  });
  return value;
}
