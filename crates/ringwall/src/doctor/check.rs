//! One row of the report.

use serde::Serialize;

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Check {
    /// The name in JSON, with underscores; the table shows [`Check::title`].
    pub(crate) name: &'static str,
    pub(crate) state: State,
    pub(crate) detail: String,
    /// The consequence of a partial or missing item.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) costs: Option<String>,
    /// The remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fix: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    Ok,
    Partial,
    Missing,
    /// Missing, but native boxes do not need it.
    Optional,
}

impl Check {
    pub(crate) fn new(name: &'static str, state: State, detail: impl Into<String>) -> Self {
        Check { name, state, detail: detail.into(), costs: None, fix: None }
    }

    pub(crate) fn costs(mut self, costs: impl Into<String>) -> Self {
        self.costs = Some(costs.into());
        self
    }

    pub(crate) fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = Some(fix.into());
        self
    }

    /// The name with spaces, for the table.
    pub(crate) fn title(&self) -> String {
        self.name.replace('_', " ")
    }
}
