// The logged-in user. The cookie is not readable by scripts.

import { computed, ref } from "vue";

import { ask, onLoggedOut } from "./api";
import type { Me } from "./types";

export const me = ref<Me | null>(null);
/** True when the server has answered who the user is. */
export const isKnown = ref(false);

export const isOperator = computed(() => me.value?.role === "owner" || me.value?.role === "operator");
export const isOwner = computed(() => me.value?.role === "owner");
/** Agents may not answer approvals. */
export const mayAnswer = computed(() => me.value !== null && me.value.role !== "agent");

onLoggedOut(() => {
  me.value = null;
});

export async function loadMe(): Promise<void> {
  try {
    me.value = await ask<Me>("GET", "/api/me");
  } catch {
    me.value = null;
  }
  isKnown.value = true;
}

export async function logIn(body: { token: string } | { code: string }): Promise<void> {
  me.value = await ask<Me>("POST", "/api/login", { body });
  isKnown.value = true;
}

export async function logOut(): Promise<void> {
  try {
    await ask("POST", "/api/logout");
  } finally {
    me.value = null;
  }
}
