// The pages and their addresses, all below `/console`, where the API has no routes.

import { createRouter, createWebHistory } from "vue-router";

import { isKnown, loadMe, me } from "./session";

export const router = createRouter({
  history: createWebHistory(),
  routes: [
    { path: "/", redirect: "/console/overview" },
    { path: "/console", redirect: "/console/overview" },
    { path: "/login", component: () => import("./pages/LoginPage.vue"), meta: { open: true } },
    { path: "/console/overview", component: () => import("./pages/OverviewPage.vue") },
    { path: "/console/execs", component: () => import("./pages/ExecsPage.vue") },
    { path: "/console/execs/:id", component: () => import("./pages/ExecPage.vue"), props: true },
    { path: "/console/approvals", component: () => import("./pages/ApprovalsPage.vue") },
    { path: "/console/sessions", component: () => import("./pages/SessionsPage.vue") },
    { path: "/console/sessions/:id", component: () => import("./pages/SessionPage.vue"), props: true },
    { path: "/console/workspaces", component: () => import("./pages/WorkspacesPage.vue") },
    { path: "/console/settings", redirect: "/console/settings/sandbox" },
    { path: "/console/settings/:tab", component: () => import("./pages/SettingsPage.vue"), props: true },
    { path: "/console/audit", component: () => import("./pages/AuditPage.vue") },
    { path: "/:rest(.*)*", component: () => import("./pages/NotFoundPage.vue"), meta: { open: true } },
  ],
  scrollBehavior: () => ({ top: 0 }),
});

router.beforeEach(async (to) => {
  if (!isKnown.value) await loadMe();
  if (to.meta.open || me.value) return true;
  return { path: "/login", query: to.fullPath === "/console/overview" ? {} : { to: to.fullPath } };
});
