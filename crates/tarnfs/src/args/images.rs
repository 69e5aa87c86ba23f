//! What is asked of container images.

use clap::Args;
use tarnfs_tree::containers::{Platform, Wanted};

#[derive(Debug, Args)]
pub(crate) struct Images {
    /// Of a container image for several platforms, show the one for OS/ARCHITECTURE or OS/ARCHITECTURE/VARIANT
    /// (default: for this machine, else the first)
    #[arg(hide_short_help = true, long, value_name = "PLATFORM", help_heading = "What is shown")]
    platform: Option<Platform>,

    /// Show archives and layouts of container images as they are stored, not as what a container would see
    #[arg(hide_short_help = true, long, conflicts_with = "platform", help_heading = "What is shown")]
    no_images: bool,
}

impl Images {
    /// As trees are put together with it.
    pub(crate) fn wanted(&self) -> Option<Wanted> {
        (!self.no_images).then(|| Wanted { platform: self.platform.clone(), ..Wanted::default() })
    }

    /// The same for people who are not the owner of a mount.
    pub(crate) fn wanted_by_others(&self) -> Option<Wanted> {
        self.wanted().map(|wanted| Wanted { without_layers: true, ..wanted })
    }
}
