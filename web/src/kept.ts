// Small choices that a browser keeps: language and colours. A browser that keeps nothing still works.

import { ref, watch, type Ref } from "vue";

export function kept<T extends string>(name: string, usual: T, allowed: readonly T[]): Ref<T> {
  const key = `ringwall.${name}`;
  let found: string | null = null;
  try {
    found = localStorage.getItem(key);
  } catch {
    // Storage is forbidden here.
  }
  const value = ref(allowed.includes(found as T) ? (found as T) : usual) as Ref<T>;
  watch(value, (chosen) => {
    try {
      localStorage.setItem(key, chosen);
    } catch {
      // Then it lasts as long as the page.
    }
  });
  return value;
}
