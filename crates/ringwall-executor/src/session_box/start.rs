//! From a grant to a box that stays, whoever makes it.

use std::path::PathBuf;

use ringwall_policy::Grant;

use super::keep::Resident;
use super::lower::Wardrobe;
use super::reins::Body;
use crate::docker::{Docker, Runtime};
use crate::error::Error;
use crate::executor::Executor;
use crate::native::prepare::network;
use crate::native::start::Options;
use crate::plan::limits::Stay;
use crate::plan::lower;
use crate::plan::lower::Occupant;
use crate::process::program;
use crate::sources::{Opened, Sources, owner};

impl Executor {
    /// Makes a box that stays, with everything that the grant gives but its command. When this returns, every protection is
    /// in force and the agent is there. The grant's time limit is not the box's.
    pub async fn start_resident(&self, grant: Grant) -> Result<Resident, Error> {
        let sources = Sources::open(&grant, &self.images, self.data.as_deref()).await?;
        let wardrobe = wardrobe(&sources);
        let occupant = Occupant::Agent(program::agent(self.host.privilege)?);
        let prepared = self.prepare_as(owner(&grant), network(&grant))?;
        let running = self.launch_box(prepared, &grant, sources, Options::default(), occupant).await?;
        Resident::begin(Body::Native(Box::new(running)), grant, wardrobe).await
    }

    /// The same behind gVisor's kernel.
    pub async fn start_resident_on_gvisor(&self, grant: Grant) -> Result<Resident, Error> {
        let wardrobe = wardrobe(&Sources::open(&grant, &self.images, self.data.as_deref()).await?);
        let running = self.launch_on_gvisor(&grant, Stay::Resident).await?;
        Resident::begin(Body::Gvisor(Box::new(running)), grant, wardrobe).await
    }
}

fn wardrobe(sources: &Sources) -> Wardrobe {
    let root = sources.image.as_ref().map_or(PathBuf::from("/"), |image: &Opened| image.place().to_owned());
    Wardrobe::Ours { home: lower::home(sources), root }
}

impl Docker {
    /// The same as a container of this name.
    pub async fn start_resident(&self, grant: Grant, name: &str, runtime: Runtime) -> Result<Resident, Error> {
        let container = self.launch(&grant, name, runtime, Stay::Resident).await?;
        Resident::begin(Body::Docker(Box::new(container)), grant, Wardrobe::Image).await
    }
}
