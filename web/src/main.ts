import { createApp } from "vue";

import App from "./App.vue";
import { router } from "./router";
import "./theme";
import "./styles/base.css";
import "./styles/parts.css";
import "./styles/dialog.css";
import "./styles/code.css";
import "./styles/pages.css";
import "./styles/cards.css";

createApp(App).use(router).mount("#app");
