//! Settings: the document that operators store, the start-up configuration that overrides it, and
//! the policy layers derived from both.

mod aio;
mod document;
mod pinned;
pub(crate) mod schema;
mod session_rules;
mod view;

pub use document::{SkillNames, Webhook, aio_service, docker_settings};
pub use pinned::{PinnedSettings, Source, setting_keys, setting_variable};
pub use view::SettingsView;

pub(crate) use aio::AssignedService;
pub(crate) use document::{SessionsPart, Settings, here, is_address, lasting_layers, layers, merge};
pub(crate) use session_rules::{Rules, read_mode, tightens};
#[cfg(test)]
pub(crate) use {pinned::WEBHOOK_SECRET, view::HIDDEN};
