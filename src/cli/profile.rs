//! Flags of `kstatd profile`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

/// The actions of `kstatd profile`.
#[derive(Debug, Subcommand)]
pub enum ProfileCommand {
    /// Draw the change between two saved profiles as a differential flame graph
    Diff(ProfileDiffArgs),
}

/// Flags of `kstatd profile diff`.
#[derive(Clone, Debug, Args)]
#[command(
    long_about = "Draw the change between two saved profiles as a differential flame graph (SVG).\n\n\
        Both files are in pprof format, such as those of /debug/pprof/profile and /debug/pprof/heap. The width of a \
        frame is its value in the second profile. The own value of red frames grew and that of blue frames shrank, \
        without the functions they call. Stacks that only the first profile has are not drawn; swap the files to see them. CPU time \
        is scaled to the same duration."
)]
pub struct ProfileDiffArgs {
    /// Base profile
    #[arg(value_name = "BASE")]
    pub base: PathBuf,
    /// Profile to compare with the base
    #[arg(value_name = "PROFILE")]
    pub profile: PathBuf,
    /// Write the SVG to this file instead of standard output
    #[arg(long, value_name = "FILE")]
    pub file: Option<PathBuf>,
    /// Scale the base to the same total, to compare shares under different load
    #[arg(long)]
    pub normalize: bool,
}
