//! Boxes behind gVisor's kernel, made with its `runsc` alone: no docker, and the same root as a native box.
//!
//! `runsc` needs root and starts processes that live on without it. So it runs in a room of its own, under a warden
//! (`jail`): namespaces with a root file system in memory that holds the host's programs, the project's directories, and
//! whatever `runsc` writes. `room` and `config` say what is in it and what the box may do (both pure), `launch` starts it,
//! `running` follows it to its end. When the warden ends, for whatever reason, the kernel ends everything in the room;
//! nothing of it is left on a disk, so there is nothing to sweep. No other backend ever stands in.

mod config;
mod launch;
mod room;
mod running;
mod warden;
