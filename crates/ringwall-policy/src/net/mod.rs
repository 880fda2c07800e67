//! What of the network a box may reach, by name: hosts, entries of a list, the list, and what each layer wants of it.
//!
//! Pure: nothing is resolved or connected to here. A list says which names may be asked for; which *addresses* a name may
//! lead to is a rule of its own (`address`), because a name says nothing about where it leads.

mod address;
mod entry;
mod host;
mod list;
mod page;
mod web_port;
mod wish;

pub use address::{metadata_use, special_use};
pub use entry::NetEntry;
pub use host::NetHost;
pub use list::NetList;
pub use page::{External, NOT_PUBLIC, Window, check_page, page_host};
pub use web_port::is_web_port;
pub use wish::{Net, NetMode, NetWish, Unknown};
