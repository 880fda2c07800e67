//! Machinery of the black-box tests: it starts the real binary as a user would, from outside, and looks at the
//! host before and after. It never links a crate of the product, so that a test can only see what a user sees,
//! and it never alters the machine beyond scratch directories of its own under `/tmp`, `/var/tmp` and `/dev/shm`.

pub mod support {
    //! In reading order: who acts, on what, through which command, and what the host shows afterwards.
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
