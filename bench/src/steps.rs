//! Where the time of a box goes: the steps that the jail reports, and what lies before and after them.
//!
//! The jail says when each step was done; a step's cost is the distance to the one before. What the jail cannot
//! see is taken from outside: the time until its first instruction, and the time after the command's end.

use std::time::Duration;

use executor::Step;

use crate::boxes::Timed;
use crate::samples::Samples;

/// A part of a box's life, in the order in which parts were first seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    /// Decide, lower, ask the spawner for a jail; up to its first instruction, and the report's way back.
    Outside,
    Step(Step),
    /// From all protections in force to the command reaped and everything else in the box ended.
    Command,
    /// PID 1 ends, the kernel takes the namespaces down, cgroups are removed, the jail is reaped.
    TakeDown,
}

impl Part {
    pub(crate) fn name(self) -> String {
        match self {
            Part::Outside => "decide, plan, get a jail".to_owned(),
            // A box with namespaces knows it only when it is told that its ids are mapped.
            Part::Step(Step::MapIdentity) => "jail: make the namespaces, map the user id".to_owned(),
            Part::Step(Step::OpenSources) => "jail: open what is mounted".to_owned(),
            Part::Step(Step::BuildRoot) => "jail: build the root file system".to_owned(),
            Part::Step(Step::LimitResources) => "jail: set the resource limits".to_owned(),
            Part::Step(Step::VerifyPrivileges) => "jail: verify that no privilege is left".to_owned(),
            Part::Step(step) => format!("jail: {}", step.words()),
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
        let inside = timed.outcome.steps.last().map_or(Duration::ZERO, |last| micros(last.microseconds));
        self.push(Part::Outside, timed.until_started.saturating_sub(inside));
        let mut before = Duration::ZERO;
        for step in &timed.outcome.steps {
            let done = micros(step.microseconds);
            self.push(Part::Step(step.step), done.saturating_sub(before));
            before = done;
        }
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
    use executor::{Ending, Outcome, StepTime, Usage};

    use super::*;

    #[test]
    fn the_parts_add_up_to_the_whole() {
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
                steps: vec![step(Step::ReadPlan, 100), step(Step::BuildRoot, 400), step(Step::FilterCalls, 900)],
            },
        };
        let mut steps = Steps::default();
        steps.add(&timed);
        let parts: Vec<_> = steps.parts().iter().map(|(part, samples)| (*part, samples.median().as_micros())).collect();
        let expected = [
            (Part::Outside, 900),
            (Part::Step(Step::ReadPlan), 100),
            (Part::Step(Step::BuildRoot), 300),
            (Part::Step(Step::FilterCalls), 500),
            (Part::Command, 700),
            (Part::TakeDown, 500),
        ];
        assert_eq!(parts, expected);
        assert_eq!(parts.iter().map(|(_, time)| time).sum::<u128>(), steps.total().median().as_micros());
    }
}
