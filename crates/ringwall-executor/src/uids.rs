//! Host uids of boxes that belong to no workspace and of warm boxes. A uid goes to one box at a time and is free
//! again after the last process of that box has ended.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use ringwall_jail::plan::Owner;

use crate::pidfd::{Init, is_over};

/// The first of the user ids that boxes get as root: in the range that systemd's table of ids leaves unused.
const FIRST_BOX_UID: u32 = 1_880_000_000;

/// Number of uids per server process for boxes without a workspace, and again for warm boxes.
pub(crate) const MAX_UIDS: u32 = 30;

/// Process ids are unique among living processes, so no other process of Ringwall gives this uid to a box.
pub(crate) fn box_uid(index: u32) -> u32 {
    const PROCESS_IDS: u32 = 1 << 22;
    FIRST_BOX_UID + index * PROCESS_IDS + std::process::id() % PROCESS_IDS
}

/// [`MAX_UIDS`] uids.
#[derive(Debug)]
pub(crate) struct Leases {
    first: u32,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Slots that were ever handed out.
    begun: u32,
    /// Returned slots whose box has ended or is ending, first returned first.
    left: VecDeque<(u32, Init)>,
}

/// One uid, returned when this is dropped.
#[derive(Debug)]
pub(crate) struct Lease {
    slot: u32,
    init: Init,
    leases: Arc<Leases>,
}

impl Leases {
    pub(crate) fn of_boxes_without_workspace() -> Arc<Self> {
        Arc::new(Leases { first: 0, state: Mutex::default() })
    }

    pub(crate) fn of_warm_boxes() -> Arc<Self> {
        Arc::new(Leases { first: MAX_UIDS, state: Mutex::default() })
    }

    /// Returns a uid of no living box, or `None` if all are in use.
    pub(crate) fn take(self: &Arc<Self>) -> Option<Lease> {
        let mut state = self.state.lock();
        let free = state.left.iter().position(|(_, init)| is_over(init));
        let slot = match free.and_then(|free| state.left.remove(free)) {
            Some((slot, _)) => slot,
            None if state.begun < MAX_UIDS => {
                state.begun += 1;
                state.begun - 1
            }
            None => return None,
        };
        Some(Lease { slot, init: Init::default(), leases: Arc::clone(self) })
    }
}

impl Lease {
    pub(crate) fn owner(&self) -> Owner {
        let uid = box_uid(self.leases.first + self.slot);
        Owner { uid, gid: uid }
    }

    /// The uid becomes free when this PID 1 has ended.
    pub(crate) fn bind(&mut self, init: Init) {
        self.init = init;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let mut state = self.leases.state.lock();
        state.left.push_back((self.slot, std::mem::take(&mut self.init)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uid_of_living_box_is_not_reused() {
        let leases = Leases::of_warm_boxes();
        let held: Vec<Lease> = (0..MAX_UIDS).map(|_| leases.take().expect("a free uid")).collect();
        let mut users: Vec<u32> = held.iter().map(|lease| lease.owner().uid).collect();
        users.sort_unstable();
        users.dedup();
        assert_eq!(users.len(), held.len());
        assert!(leases.take().is_none());

        // This process stands in for a PID 1 that outlives its lease.
        let living = rustix::process::pidfd_open(rustix::process::getpid(), rustix::process::PidfdFlags::empty());
        let mut held = held.into_iter();
        let (mut first, second) = (held.next().expect("many"), held.next().expect("many"));
        let init = Init::default();
        let _ = init.set(living.expect("this process"));
        first.bind(init);
        let (not_yet, free) = (first.owner(), second.owner());
        drop((first, second));
        assert_eq!(leases.take().map(|lease| lease.owner()), Some(free));
        assert_ne!(leases.take().map(|lease| lease.owner()), Some(not_yet));
    }
}
