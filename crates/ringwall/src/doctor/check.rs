//! One row of the report: a name, a state, what was found, and where something lacks, what that costs and what to do.

use serde::Serialize;

#[derive(Debug, Clone, Serialize)]
pub(crate) struct Check {
    /// The name that programs read; people see it with spaces.
    pub(crate) name: &'static str,
    pub(crate) state: State,
    pub(crate) detail: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) costs: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fix: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    Ok,
    Partial,
    Missing,
    /// Not there, and nothing that boxes need.
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

    /// The name as people read it.
    pub(crate) fn title(&self) -> String {
        self.name.replace('_', " ")
    }
}
