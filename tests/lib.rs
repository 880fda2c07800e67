//! What the black-box suites share. They start the real binary as a user would and inspect the host before and after.
//! They link no crate of the product, so that a test sees only what a user sees.

pub mod support {
    //! Users, servers, daemons, databases, and what the host shows of them.
    pub mod actor;
    pub mod aio_stand_in;
    pub mod asked;
    pub mod boxed;
    pub mod canary;
    pub mod docker_daemon;
    pub mod docker_image;
    pub mod host;
    pub mod listener;
    pub mod payload;
    pub mod pool_watch;
    pub mod postgres_cluster;
    pub mod process;
    pub mod scratch;
    pub mod server;
    pub mod traces;
    pub mod wait;
}

/// The name and the function of each test: `module::{test, …}`.
#[macro_export]
macro_rules! cases {
    ($($module:ident :: { $($name:ident),* $(,)? })*) => {
        &[$($((concat!(stringify!($module), "::", stringify!($name)), $module::$name),)*)*]
    };
}
