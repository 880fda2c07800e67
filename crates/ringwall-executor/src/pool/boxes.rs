//! What a pool has to know of the boxes that it keeps. It makes spares by itself; whoever wants a session's box brings what
//! makes it.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;

use super::sort::Sort;

/// Makes spares, and ends boxes of both sorts.
pub trait Maker: Debug + Send + Sync + 'static {
    /// What a session is known by.
    type Key: Clone + Ord + Debug + Send + Sync;
    /// A sort of spares.
    type Kind: Sort;
    type Resident: Debug + Send + Sync;
    type Spare: Debug + Send;
    /// What spares are made with. Whoever makes one lets go of it after the spare is in its place: who has made a box and is
    /// to go first waits for its end.
    type Tools: Send + Sync;

    /// Nothing when there are none any more.
    fn tools(&self) -> Option<Self::Tools>;

    /// Nothing when it cannot be made; whoever makes it says why.
    fn make_spare(tools: &Self::Tools, kind: &Self::Kind) -> impl Future<Output = Option<Self::Spare>> + Send;

    fn is_alive(spare: &Self::Spare) -> bool;

    /// Returns when no process of it is left.
    fn end_spare(spare: Self::Spare) -> impl Future<Output = ()> + Send;

    /// Returns when the box is dead, whoever ended it.
    fn died(resident: &Self::Resident) -> impl Future<Output = ()> + Send;

    /// Returns when no process of it is left. It may have died before.
    fn end(resident: Arc<Self::Resident>) -> impl Future<Output = ()> + Send;
}
