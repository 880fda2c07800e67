//! The hosts that a box may reach: names, list entries, lists, and what each layer asks for.
//!
//! Pure: nothing is resolved or connected to. A list restricts names. The *addresses* that a name
//! may resolve to are restricted separately (`address`), because the owner of a name can point it
//! at any address.

mod address;
mod entry;
mod host;
mod list;
mod page;
mod request;
mod web_port;

pub use address::{metadata_use, special_use};
pub use entry::NetEntry;
pub use host::NetHost;
pub use list::NetList;
pub use page::{BrowserKind, ExternalMode, NOT_PUBLIC, check_page, page_host};
pub use request::{Net, NetMode, NetRequest, UnknownHost};
pub use web_port::is_web_port;
