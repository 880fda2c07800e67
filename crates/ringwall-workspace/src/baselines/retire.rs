//! Removes versions that are neither current nor part of a snapshot in use.

use std::sync::{Arc, Weak};

use ringwall_ids::AgentId;
use rustix::fs::Dir;

use crate::baselines::snapshot::{Current, Version};
use crate::baselines::store::{Baselines, CURRENT};
use crate::error::Error;
use crate::fs::beneath;
use crate::fs::erase::erase;
use crate::garbage::GcMode;
use crate::skills::SkillName;
use crate::usage::{Usage, measure_name};
use crate::workspaces::STAGING;

/// A version that was replaced by a newer one.
#[derive(Debug)]
pub(crate) struct Retired {
    skill_path: String,
    number: u64,
    version: Weak<Version>,
}

impl Baselines {
    pub(crate) fn retire(&self, agent: &AgentId, skill: &SkillName, version: &Arc<Version>) {
        let skill_path = format!("{agent}/{skill}");
        let retired = Retired { skill_path, number: version.number, version: Arc::downgrade(version) };
        self.retired.lock().push(retired);
    }

    /// Counts the unused versions and their disk usage, and removes them with [`GcMode::Remove`].
    pub fn collect_garbage(&self, mode: GcMode) -> (u64, Usage) {
        let mut found = (0, Usage::default());
        for retired in self.retired.lock().iter() {
            if retired.version.strong_count() == 0
                && let Ok(directory) = beneath::open_directory(&self.root, retired.skill_path.as_str())
                && let Ok(usage) = measure_name(&directory, &retired.number.to_string())
            {
                found = (found.0 + 1, found.1.plus(usage));
            }
        }
        if mode == GcMode::Remove {
            self.remove_retired();
        }
        found
    }

    /// Removes the unused versions. After an error the next start of the server removes them.
    pub(crate) fn remove_retired(&self) {
        let mut free = Vec::new();
        self.retired.lock().retain(|retired| {
            let is_held = retired.version.strong_count() > 0;
            if !is_held {
                free.push((retired.skill_path.clone(), retired.number));
            }
            is_held
        });
        for (skill_path, number) in free {
            if let Ok(directory) = beneath::open_directory(&self.root, skill_path.as_str()) {
                let _ = erase(&directory, &number.to_string());
                let _ = erase(&directory, &format!("{number}.json"));
            }
        }
    }

    /// Removes everything that is not named in an agent's file of current versions. Returns an
    /// error for each agent whose file cannot be read; nothing of such an agent is removed. For the
    /// start of the server, when no snapshot is in use.
    pub(crate) fn sweep(&self) -> Result<Vec<Error>, Error> {
        let mut unreadable = Vec::new();
        let mut sweep = || -> std::io::Result<()> {
            for name in names(&self.staging)? {
                erase(&self.staging, &name)?;
            }
            for agent in names(&self.root)? {
                // Other names that are no agent ids are left alone, too.
                if agent == STAGING || agent == CURRENT {
                    continue;
                }
                let Ok(agent) = agent.parse::<AgentId>() else { continue };
                match self.read_current(&agent) {
                    Ok(current) => self.sweep_agent(agent.as_str(), &current.unwrap_or_default())?,
                    Err(source) => unreadable.push(Error::BaselinesUnreadable { agent, source }),
                }
            }
            Ok(())
        };
        sweep().map_err(|source| Error::Baseline {
            operation: "remove leftovers of a crash from the baselines",
            source,
        })?;
        Ok(unreadable)
    }

    fn sweep_agent(&self, name: &str, current: &Current) -> std::io::Result<()> {
        let agent_dir = beneath::open_directory(&self.root, name)?;
        for folder in names(&agent_dir)? {
            let skill_dir = beneath::open_directory(&agent_dir, folder.as_str())?;
            let kept = kept(current, &folder);
            for stray in names(&skill_dir)?.iter().filter(|name| !kept.contains(name)) {
                erase(&skill_dir, stray)?;
            }
        }
        Ok(())
    }
}

fn kept(current: &Current, folder: &str) -> Vec<String> {
    let number = folder.parse::<SkillName>().ok().and_then(|skill| current.skills.get(&skill));
    number.map(|number| vec![number.to_string(), format!("{number}.json")]).unwrap_or_default()
}

fn names(directory: &std::os::fd::OwnedFd) -> std::io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        match entry?.file_name().to_str() {
            Ok("." | "..") | Err(_) => {}
            Ok(name) => names.push(name.to_owned()),
        }
    }
    Ok(names)
}
