//! The report and its rows, as `--json` prints them and as the input of the table.

use ringwall_executor::{Privilege, ProtectionState};
use serde::Serialize;

use super::facts::{Facts, ProbeBox};
use super::{machine, protections};

/// One row.
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

    pub(crate) fn fix(self, fix: impl Into<String>) -> Self {
        self.fix_if_known(Some(fix.into()))
    }

    pub(crate) fn fix_if_known(mut self, fix: Option<String>) -> Self {
        self.fix = fix;
        self
    }

    /// The name for the table.
    pub(crate) fn title(&self) -> String {
        match self.name {
            "trial_box" => "probe box".to_owned(),
            name => name.replace('_', " "),
        }
    }
}

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) can_make_boxes: bool,
    /// `root` or `rootless`: the privileges with which boxes are made.
    pub(crate) mode: &'static str,
    pub(crate) kernel: String,
    pub(crate) checks: Vec<Check>,
    /// The last line of the table.
    #[serde(skip)]
    pub(crate) conclusion: String,
}

impl Report {
    pub(crate) fn new(facts: &Facts) -> Self {
        let mut checks = protections::rows(facts);
        checks.extend(machine::rows(facts));
        Report {
            can_make_boxes: matches!(facts.probe_box, ProbeBox::Made { .. }),
            mode: match facts.privilege {
                Privilege::Root => "root",
                Privilege::Rootless => "rootless",
            },
            kernel: facts.kernel.release.clone(),
            checks,
            conclusion: conclusion(facts),
        }
    }
}

fn conclusion(facts: &Facts) -> String {
    let manner = match facts.privilege {
        Privilege::Root => "as root",
        Privilege::Rootless => "without root",
    };
    match &facts.probe_box {
        ProbeBox::Failed(failure) => format!("No box can be made here, {manner}: {}.", failure.text),
        ProbeBox::Made { protections, .. } => {
            let weak = protections.iter().filter(|protection| protection.state != ProtectionState::Enforced).count();
            match weak {
                0 => format!("Boxes can be made here, {manner}."),
                1 => format!("Boxes can be made here, {manner}; one protection is not fully enforced."),
                weak => format!("Boxes can be made here, {manner}; {weak} protections are not fully enforced."),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ringwall_executor::{Protection, ProtectionName, Step};

    #[test]
    fn json_has_the_documented_keys() {
        let json = serde_json::to_value(Report::new(&Facts::sample())).unwrap();
        let keys = |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
        assert_eq!(keys(&json), ["can_make_boxes", "checks", "kernel", "mode"]);
        assert_eq!(json["can_make_boxes"], true);
        assert_eq!(json["mode"], "root");
        assert_eq!(json["kernel"], "6.18.5");
        assert_eq!(keys(&json["checks"][0]), ["detail", "name", "state"]);
        assert_eq!(json["checks"][0]["state"], "ok");
        let failed = Report::new(&Facts::rootless().failed(Step::MakeNamespaces, 1));
        let json = serde_json::to_value(&failed).unwrap();
        assert_eq!(json["can_make_boxes"], false);
        assert_eq!(json["mode"], "rootless");
        assert_eq!(keys(&json["checks"][0]), ["costs", "detail", "fix", "name", "state"]);
    }

    #[test]
    fn check_names_are_unique() {
        for facts in [Facts::sample(), Facts::rootless().failed(Step::MakeNamespaces, 1)] {
            let mut names: Vec<_> = Report::new(&facts).checks.iter().map(|check| check.name).collect();
            let count = names.len();
            names.sort_unstable();
            names.dedup();
            assert_eq!(names.len(), count);
        }
    }

    #[test]
    fn conclusion_names_privileges_and_weak_protections() {
        assert_eq!(conclusion(&Facts::sample()), "Boxes can be made here, as root.");
        let mut weak = Facts::rootless();
        if let ProbeBox::Made { protections, .. } = &mut weak.probe_box {
            protections[0] = Protection::partial(ProtectionName::Landlock, "old");
        }
        assert_eq!(conclusion(&weak), "Boxes can be made here, without root; one protection is not fully enforced.");
        let failed = Facts::rootless().failed(Step::MakeNamespaces, 1);
        assert_eq!(conclusion(&failed), "No box can be made here, without root: could not make the namespaces.");
    }
}
