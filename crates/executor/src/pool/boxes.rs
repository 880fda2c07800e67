//! What a pool has to know of the boxes that it keeps. It makes spares by itself; whoever wants a session's box brings what
//! makes it.

use std::fmt::Debug;
use std::future::Future;
use std::sync::Arc;

/// Makes spares, and ends boxes of both sorts.
pub trait Maker: Debug + Send + Sync + 'static {
    /// What a session is known by.
    type Key: Clone + Ord + Debug + Send + Sync;
    /// A sort of spares.
    type Kind: Copy + Ord + Debug + Send + Sync;
    type Resident: Debug + Send + Sync;
    type Spare: Debug + Send;

    /// Nothing when it cannot be made; whoever makes it says why.
    fn make_spare(&self, kind: Self::Kind) -> impl Future<Output = Option<Self::Spare>> + Send;

    fn is_alive(spare: &Self::Spare) -> bool;

    fn end_spare(&self, spare: Self::Spare) -> impl Future<Output = ()> + Send;

    /// Returns when the box is dead, whoever ended it.
    fn died(resident: &Self::Resident) -> impl Future<Output = ()> + Send;

    /// Returns when no process of it is left. It may have died before.
    fn end(&self, resident: Arc<Self::Resident>) -> impl Future<Output = ()> + Send;
}
