//! The gvisor backend: boxes made with `runsc` alone, without docker, on the same root as native
//! boxes.
//!
//! `runsc` needs root and starts processes that outlive it. So it runs below an init process of
//! ours (`GvisorInit`, in `jail` `gvisor_init`) in namespaces of its own. Their root file system, the
//! runsc root, is a tmpfs with the host's programs, the workspace's directories and the files that
//! `runsc` writes. `runsc_root` builds it and `config` the box's configuration (both pure), `launch`
//! starts the box, `running` follows it to its end. When the init process ends, the kernel kills
//! everything in its namespaces. Nothing is left on disk, so there is nothing to sweep. If gVisor is
//! not available, the request fails; no other backend replaces it.

mod config;
mod gvisor_init;
mod launch;
mod running;
mod runsc_root;
#[cfg(test)]
mod tests;
