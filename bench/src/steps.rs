//! The time of a box by step: those that the jail reports, and the time before and after them.

use std::time::Duration;

use ringwall_executor::Step;

use crate::boxes::Timed;
use crate::samples::Samples;

/// A part of a box's life, in the order in which parts were first seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Step(Step),
    /// From the decision until all protections are in force.
    Start,
    /// From all protections in force to the command reaped and everything else in the box ended.
    Command,
    /// PID 1 ends, the kernel takes the namespaces down, cgroups are removed, the jail is reaped.
    TakeDown,
}

impl Part {
    pub(crate) fn name(self) -> String {
        match self {
            Part::Step(Step::OpenSources) => "executor: open the mounted directories".to_owned(),
            Part::Step(step @ Step::MakeCgroups) => format!("executor: {}", step.phrase()),
            Part::Step(Step::MakeNamespaces) => "PID 1: start, start the network helper".to_owned(),
            Part::Step(Step::ReadPlan) => "PID 1: wait for the plan and read it".to_owned(),
            Part::Step(Step::MapIdentity) => "PID 1: wait until the user id is mapped".to_owned(),
            Part::Step(Step::EnterNetwork) => "PID 1: wait for the network namespace and enter it".to_owned(),
            Part::Step(Step::BuildRoot) => "PID 1: build the root file system".to_owned(),
            Part::Step(Step::LimitResources) => "PID 1: set the resource limits".to_owned(),
            Part::Step(Step::VerifyPrivileges) => "PID 1: verify that no privilege is left".to_owned(),
            Part::Step(step) => format!("PID 1: {}", step.phrase()),
            Part::Start => "start: from the decision until all protections are in force".to_owned(),
            Part::Command => "the command, from fork to reaped".to_owned(),
            Part::TakeDown => "take the box down".to_owned(),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Steps {
    parts: Vec<(Part, Samples)>,
    total: Samples,
}

impl Steps {
    pub(crate) fn add(&mut self, timed: &Timed) {
        let micros = |microseconds: u32| Duration::from_micros(u64::from(microseconds));
        for step in &timed.outcome.steps {
            self.push(Part::Step(step.step), micros(step.microseconds));
        }
        self.push(Part::Start, timed.until_started);
        self.push(Part::Command, timed.outcome.duration);
        self.push(Part::TakeDown, timed.total.saturating_sub(timed.until_started + timed.outcome.duration));
        self.total.push(timed.total);
    }

    fn push(&mut self, part: Part, duration: Duration) {
        match self.parts.iter_mut().find(|(known, _)| *known == part) {
            Some((_, samples)) => samples.push(duration),
            None => {
                let mut samples = Samples::default();
                samples.push(duration);
                self.parts.push((part, samples));
            }
        }
    }

    pub(crate) fn parts(&self) -> &[(Part, Samples)] {
        &self.parts
    }

    pub(crate) fn of(&self, part: Part) -> Option<&Samples> {
        self.parts.iter().find(|(known, _)| *known == part).map(|(_, samples)| samples)
    }

    pub(crate) fn total(&self) -> &Samples {
        &self.total
    }
}

#[cfg(test)]
mod tests {
    use ringwall_executor::{Ending, Outcome, StepTime, Usage};

    use super::*;

    #[test]
    fn start_command_and_end_are_the_whole() {
        let step = |step, microseconds| StepTime { step, microseconds };
        let timed = Timed {
            total: Duration::from_micros(3000),
            until_started: Duration::from_micros(1800),
            outcome: Outcome {
                ending: Ending::Exited(0),
                out_of_memory: false,
                duration: Duration::from_micros(700),
                usage: Usage::default(),
                protections: Vec::new(),
                steps: vec![step(Step::ReadPlan, 100), step(Step::BuildRoot, 300)],
            },
        };
        let mut steps = Steps::default();
        steps.add(&timed);
        let parts: Vec<_> = steps.parts().iter().map(|(part, samples)| (*part, samples.median().as_micros())).collect();
        let expected = [
            (Part::Step(Step::ReadPlan), 100),
            (Part::Step(Step::BuildRoot), 300),
            (Part::Start, 1800),
            (Part::Command, 700),
            (Part::TakeDown, 500),
        ];
        assert_eq!(parts, expected);
        let whole: u128 = parts[2..].iter().map(|(_, time)| time).sum();
        assert_eq!(whole, steps.total().median().as_micros());
    }
}
